// Stands in for libcuda: the one function of the driver that the stand-in for CUPTI has no say in.
#include "fake_cupti.h"

static bool g_capturing = false;

extern "C" {

void fake_capture(bool on) { g_capturing = on; }

CUresult CUDAAPI cuStreamIsCapturing(CUstream, CUstreamCaptureStatus* status) {
  *status = g_capturing ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}

}  // extern "C"
