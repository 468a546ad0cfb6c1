/* Preloaded into a server: makes system calls on its files fail.
 *
 * KEDIS_FAULTS names a file of lines `CALL SUFFIX ERRNO COUNT`: the next COUNT calls (-1:
 * all) of CALL (write, sync, open, read) on a file whose name ends in SUFFIX fail with
 * ERRNO. The file is read before each call, so tests change it while the server runs. Failed
 * calls are counted here, separately for each distinct line. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define MOST 64

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
  char line[256];
  long used;
} counted[MOST];

static int ends_in(const char *name, const char *suffix) {
  size_t n = strlen(name), s = strlen(suffix);
  return n >= s && strcmp(name + n - s, suffix) == 0;
}

static int takes(const char *line, long count) {
  if (count < 0) return 1;
  for (int i = 0; i < MOST; ++i) {
    if (counted[i].line[0] == 0) strncpy(counted[i].line, line, sizeof counted[i].line - 1);
    if (strcmp(counted[i].line, line) == 0) return counted[i].used++ < count;
  }
  return 0;
}

/* The errno that a call is to fail with; 0: none. */
static int fault(const char *call, const char *name) {
  const char *rules = getenv("KEDIS_FAULTS");
  int found = 0;
  FILE *file = rules == NULL ? NULL : fopen(rules, "re");
  if (file == NULL) return 0;
  pthread_mutex_lock(&lock);
  char line[256], of[16], suffix[128];
  int error;
  long count;
  while (found == 0 && fgets(line, sizeof line, file) != NULL) {
    if (sscanf(line, "%15s %127s %d %ld", of, suffix, &error, &count) == 4 &&
        strcmp(of, call) == 0 && ends_in(name, suffix) && takes(line, count))
      found = error;
  }
  pthread_mutex_unlock(&lock);
  fclose(file);
  return found;
}

static int fault_of_fd(const char *call, int fd) {
  char link[64], name[PATH_MAX];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t n = readlink(link, name, sizeof name - 1);
  if (n <= 0 || name[0] != '/') return 0;
  name[n] = 0;
  return fault(call, name);
}

#define FAIL(error)                                                                            \
  do {                                                                                         \
    int failed = (error);                                                                      \
    if (failed != 0) {                                                                         \
      errno = failed;                                                                          \
      return -1;                                                                               \
    }                                                                                          \
  } while (0)

ssize_t write(int fd, const void *data, size_t n) {
  FAIL(fault_of_fd("write", fd));
  return REAL(write)(fd, data, n);
}
ssize_t pwrite(int fd, const void *data, size_t n, off_t at) {
  FAIL(fault_of_fd("write", fd));
  return REAL(pwrite)(fd, data, n, at);
}
ssize_t pwrite64(int fd, const void *data, size_t n, off_t at) {
  FAIL(fault_of_fd("write", fd));
  return REAL(pwrite64)(fd, data, n, at);
}
ssize_t pread(int fd, void *data, size_t n, off_t at) {
  FAIL(fault_of_fd("read", fd));
  return REAL(pread)(fd, data, n, at);
}
ssize_t pread64(int fd, void *data, size_t n, off_t at) {
  FAIL(fault_of_fd("read", fd));
  return REAL(pread)(fd, data, n, at);
}
ssize_t preadv2(int fd, const struct iovec *into, int n, off_t at, int flags) {
  FAIL(fault_of_fd("read", fd));
  return REAL(preadv2)(fd, into, n, at, flags);
}
int fsync(int fd) {
  FAIL(fault_of_fd("sync", fd));
  return REAL(fsync)(fd);
}
int fdatasync(int fd) {
  FAIL(fault_of_fd("sync", fd));
  return REAL(fdatasync)(fd);
}
#define OPEN(name)                                                                             \
  int name(const char *path, int flags, ...) {                                                 \
    va_list more;                                                                              \
    va_start(more, flags);                                                                     \
    int mode = va_arg(more, int);                                                              \
    va_end(more);                                                                              \
    if (flags & O_CREAT) FAIL(fault("open", path));                                            \
    return REAL(name)(path, flags, mode);                                                      \
  }
OPEN(open)
OPEN(open64)
