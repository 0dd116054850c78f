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
