// Darknet's own forward pass with an NVTX range around every iteration and every convolution, so
// that `perfml collect -- ./darknet_layers yolov4-tiny.cfg 10` knows them. Weights and image are
// random; normalisation has mean 0 and variance 1 and is folded into the weights, as `detector test`
// does. Every convolution is compared with Darknet's path on the CPU first. With cuDNN, a third
// argument is the algorithm (cudnnConvolutionFwdAlgo_t) for the convolutions that it can do.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <nvtx3/nvToolsExt.h>

#include "blas.h"
#include "convolutional_layer.h"
#include "dark_cuda.h"
#include "network.h"
#include "parser.h"

static void forward(network net, int range)
{
    network_state state = {0};
    state.net = net;
    state.input = net.input_state_gpu;
    state.workspace = net.workspace;
    int convolutions = 0;
    for (int i = 0; i < net.n; ++i) {
        layer l = net.layers[i];
        char name[32];
        state.index = i;
        const int own = l.type == CONVOLUTIONAL;
        if (own) snprintf(name, sizeof name, "conv_%02d", ++convolutions);
        else snprintf(name, sizeof name, "layer_%02d", i);
        if (range) nvtxRangePushA(name);
        l.forward_gpu(l, state);
        if (range) nvtxRangePop();
        state.input = l.output_gpu;
    }
    CHECK_CUDA(cudaStreamSynchronize(get_cuda_stream()));
}

#ifdef CUDNN
// Give every convolution this algorithm, if cuDNN has it for its shape.
static void choose(network* net, int algorithm)
{
    size_t most = 0;
    for (int i = 0; i < net->n; ++i) {
        layer* l = &net->layers[i];
        size_t size = 0;
        if (l->type != CONVOLUTIONAL) continue;
        if (algorithm >= 0 &&
            cudnnGetConvolutionForwardWorkspaceSize(
                cudnn_handle(), l->srcTensorDesc, l->weightDesc, l->convDesc, l->dstTensorDesc,
                (cudnnConvolutionFwdAlgo_t)algorithm, &size) == CUDNN_STATUS_SUCCESS)
            l->fw_algo = (cudnnConvolutionFwdAlgo_t)algorithm;
        else
            cudnnGetConvolutionForwardWorkspaceSize(
                cudnn_handle(), l->srcTensorDesc, l->weightDesc, l->convDesc, l->dstTensorDesc,
                l->fw_algo, &size);
        l->workspace_size = size;
        if (size > most) most = size;
        printf("layer %d algorithm %d, workspace %zu\n", i, (int)l->fw_algo, size);
    }
    if (most) net->workspace = cuda_make_array(0, most / sizeof(float) + 1);
}
#endif

static double norm(const float* a, const float* b, int count)
{
    double sum = 0;
    for (int i = 0; i < count; ++i) {
        const double off = (double)a[i] - (b ? b[i] : 0.0);
        sum += off * off;
    }
    return sqrt(sum);
}

// Compare one convolution with Darknet's on the CPU, on the input that it has on the GPU.
static int check(network net, int i, int number)
{
    layer l = net.layers[i];
    const float* from = i ? net.layers[i - 1].output_gpu : net.input_state_gpu;
    float* input = (float*)malloc(sizeof(float) * l.inputs * l.batch);
    float* right = (float*)malloc(sizeof(float) * l.outputs * l.batch);
    float* got = (float*)malloc(sizeof(float) * l.outputs * l.batch);
    cuda_pull_array((float*)from, input, l.inputs * l.batch);
    cuda_pull_array(l.output_gpu, got, l.outputs * l.batch);
    network_state state = {0};
    state.net = net;
    state.index = i;
    state.input = input;
    state.workspace = (float*)calloc(1, get_convolutional_workspace_size(l) + (64 << 20));
    forward_convolutional_layer(l, state);
    for (int k = 0; k < l.outputs * l.batch; ++k) right[k] = l.output[k];
    const double whole = norm(right, 0, l.outputs * l.batch);
    const double off = norm(got, right, l.outputs * l.batch) / whole;
    const int good = off < 2e-3;  // cuDNN may take TF32 or Winograd
    printf("conv_%02d norm %.6g, off %.2e%s\n", number, whole, off, good ? "" : " WRONG");
    free(input); free(right); free(got); free(state.workspace);
    return good;
}

int main(int argc, char** argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: darknet_layers CFG ITERATIONS\n");
        return 2;
    }
    gpu_index = 0;
    cuda_set_device(0);
    srand(7);
    network net = parse_network_cfg_custom(argv[1], 1, 1);
    for (int i = 0; i < net.n; ++i) {
        layer l = net.layers[i];
        if (l.type != CONVOLUTIONAL || !l.batch_normalize) continue;
        for (int k = 0; k < l.n; ++k) l.rolling_variance[k] = 1;
        push_convolutional_layer(l);
    }
    fuse_conv_batchnorm(net);
#ifdef CUDNN
    choose(&net, argc > 3 ? atoi(argv[3]) : -1);
#endif
    const int size = net.w * net.h * net.c * net.batch;
    float* image = (float*)malloc(sizeof(float) * size);
    for (int i = 0; i < size; ++i) image[i] = rand() / (float)RAND_MAX;
    cuda_push_array(net.input_state_gpu, image, size);
    forward(net, 0);
    int good = 1, convolutions = 0;
    for (int i = 0; i < net.n; ++i)
        if (net.layers[i].type == CONVOLUTIONAL) good &= check(net, i, ++convolutions);
    if (!good) return 1;
    for (int i = 0; i < 3; ++i) forward(net, 0);
    for (int i = 0; i < atoi(argv[2]); ++i) {
        char name[32];
        snprintf(name, sizeof name, "iter_%d", i);
        nvtxRangePushA(name);
        forward(net, 1);
        nvtxRangePop();
    }
    return 0;
}
