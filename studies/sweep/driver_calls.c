// Times a program's calls into the kernel driver: cc -O2 -shared -fPIC -o driver_calls.so, then
// LD_PRELOAD. At its end each process that made any writes DRIVER_CALLS.PID, a line a command:
// name, calls, seconds. A control command of NVIDIA's driver is named by its number in the public
// headers of the open kernel modules (src/common/sdk/nvidia/inc/ctrl), any other by its request.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { CONTROL = 0x2a, COMMAND = 2, KINDS = 1024 };  // COMMAND: place among the 32-bit arguments

static struct { unsigned name, calls; uint64_t ns; } kinds[KINDS];
static int used;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static uint64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static void add(unsigned name, uint64_t ns) {
  int i = 0;
  pthread_mutex_lock(&lock);
  while (i < used && kinds[i].name != name) ++i;
  if (i < KINDS) {
    if (i == used) kinds[used++].name = name;
    kinds[i].calls += 1;
    kinds[i].ns += ns;
  }
  pthread_mutex_unlock(&lock);
}

int ioctl(int file, unsigned long request, ...) {
  static int (*real)(int, unsigned long, void*);
  if (real == NULL) real = (int (*)(int, unsigned long, void*))dlsym(RTLD_NEXT, "ioctl");
  va_list arguments;
  va_start(arguments, request);
  void* given = va_arg(arguments, void*);
  va_end(arguments);
  const int control = (request >> 8 & 0xff) == 'F' && (request & 0xff) == CONTROL;
  const unsigned name = control ? ((uint32_t*)given)[COMMAND] : (unsigned)request;
  const uint64_t began = now();
  const int answer = real(file, request, given);
  add(name, now() - began);
  return answer;
}

__attribute__((destructor)) static void write_all(void) {
  const char* stem = getenv("DRIVER_CALLS");
  char path[4096];
  if (stem == NULL || used == 0) return;
  snprintf(path, sizeof path, "%s.%d", stem, (int)getpid());
  FILE* file = fopen(path, "w");
  if (file == NULL) return;
  for (int i = 0; i < used; ++i)
    fprintf(file, "%08x %u %.6f\n", kinds[i].name, kinds[i].calls, kinds[i].ns / 1e9);
  fclose(file);
}
