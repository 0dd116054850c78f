/* What the C library of an older distribution lacks, for libraries that are to be loaded there. All
 * of it is hidden: no other library sees it. */
#include <sys/stat.h>

/* GLIBC 2.32: the C++ library counts references without atomics while this is true. */
__attribute__((visibility("hidden"))) char __libc_single_threaded = 0;

/* GLIBC 2.33: before that they were calls of these, with the version of the struct. */
int __xstat(int version, char const* path, struct stat* found);
int __fxstat(int version, int file, struct stat* found);

__attribute__((visibility("hidden"))) int stat(char const* path, struct stat* found) {
  return __xstat(1, path, found);
}

__attribute__((visibility("hidden"))) int fstat(int file, struct stat* found) {
  return __fxstat(1, file, found);
}

/* GLIBC 2.38: its header gives these names to the functions that read numbers, whose texts may begin
 * with 0b since C23. By their own names they are as old as any. */
#define CUTLASS_FUSED_READ(Number, name)                                                     \
  Number old_##name(char const* text, char** end, int base) __asm__(#name);                  \
  Number __isoc23_##name(char const* text, char** end, int base);                            \
  __attribute__((visibility("hidden"))) Number __isoc23_##name(char const* text, char** end, \
                                                               int base) {                   \
    return old_##name(text, end, base);                                                      \
  }

CUTLASS_FUSED_READ(long, strtol)
CUTLASS_FUSED_READ(long long, strtoll)
CUTLASS_FUSED_READ(unsigned long, strtoul)
CUTLASS_FUSED_READ(unsigned long long, strtoull)
