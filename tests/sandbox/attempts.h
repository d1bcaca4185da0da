#pragma once

#include <fcntl.h>
#include <linux/io_uring.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <string_view>

namespace sluice::test {

struct Attempt {
  const char* name;
  void (*run)();
};

inline long call(long number, uint64_t a = 0, uint64_t b = 0, uint64_t c = 0, uint64_t d = 0, uint64_t e = 0, uint64_t f = 0) {
  return syscall(number, a, b, c, d, e, f);
}
inline uint64_t address(const void* pointer) { return reinterpret_cast<uint64_t>(pointer); }

inline constexpr std::string_view k32BitCall = "a call of the 32-bit interface";

/// What a process that runs code of an attacker's would try. Each must end it.
inline constexpr Attempt kAttempts[] = {
    {"open", [] { call(SYS_open, address("/etc/passwd"), O_RDONLY); }},
    {"openat", [] { call(SYS_openat, AT_FDCWD, address("/etc/passwd"), O_RDONLY); }},
    {"openat2", [] { call(SYS_openat2, AT_FDCWD, address("/etc/passwd")); }},
    {"creat", [] { call(SYS_creat, address("/tmp/sluice-escape"), 0600); }},
    {"stat", [] { call(SYS_newfstatat, AT_FDCWD, address("/etc/passwd")); }},
    {"readlink", [] { call(SYS_readlink, address("/proc/self/exe")); }},
    {"unlink", [] { call(SYS_unlink, address("/tmp/sluice-escape")); }},
    {"rename", [] { call(SYS_rename, address("/tmp/sluice-a"), address("/tmp/sluice-b")); }},
    {"chmod", [] { call(SYS_chmod, address("/tmp/sluice-escape"), 0777); }},
    {"mkdir", [] { call(SYS_mkdir, address("/tmp/sluice-escape"), 0777); }},
    {"chdir", [] { call(SYS_chdir, address("/")); }},
    {"mount", [] { call(SYS_mount, address("none"), address("/tmp"), address("tmpfs")); }},
    {"memfd_create", [] { call(SYS_memfd_create, address("x"), 0); }},
    {"read of another descriptor", [] { call(SYS_read, 5, 0, 0); }},
    {"write to standard error", [] { call(SYS_write, STDERR_FILENO, address("x"), 1); }},
    {"pread", [] { call(SYS_pread64, STDIN_FILENO, 0, 0); }},
    {"dup", [] { call(SYS_dup, STDOUT_FILENO); }},
    {"fcntl", [] { call(SYS_fcntl, STDOUT_FILENO, F_GETFL); }},
    {"ioctl", [] { call(SYS_ioctl, STDOUT_FILENO, 0); }},
    {"sendfile", [] { call(SYS_sendfile, STDOUT_FILENO, STDIN_FILENO, 0, 1); }},
    {"socket", [] { call(SYS_socket, AF_INET, SOCK_STREAM); }},
    {"socket of the machine", [] { call(SYS_socket, AF_UNIX, SOCK_STREAM); }},
    {"socketpair", [] { call(SYS_socketpair, AF_UNIX, SOCK_STREAM); }},
    {"connect", [] { call(SYS_connect, STDIN_FILENO); }},
    {"bind", [] { call(SYS_bind, STDIN_FILENO); }},
    {"fork", [] { call(SYS_fork); }},
    {"vfork", [] { call(SYS_vfork); }},
    {"clone", [] { call(SYS_clone, SIGCHLD); }},
    {"clone3", [] { call(SYS_clone3); }},
    {"execve", [] { call(SYS_execve, address("/bin/sh")); }},
    {"execveat", [] { call(SYS_execveat, AT_FDCWD, address("/bin/sh")); }},
    {"kill of the parent", [] { call(SYS_kill, 1, 0); }},
    {"tgkill of another process", [] { call(SYS_tgkill, 1, 1, 0); }},
    {"pidfd_open", [] { call(SYS_pidfd_open, 1); }},
    {"ptrace", [] { call(SYS_ptrace, PTRACE_TRACEME); }},
    {"process_vm_readv", [] { call(SYS_process_vm_readv, 1); }},
    {"process_vm_writev", [] { call(SYS_process_vm_writev, 1); }},
    {"getppid", [] { call(SYS_getppid); }},
    {"setsid", [] { call(SYS_setsid); }},
    {"setuid", [] { call(SYS_setuid, 0); }},
    {"setrlimit", [] { call(SYS_setrlimit, RLIMIT_AS); }},
    {"prlimit", [] { call(SYS_prlimit64, 0, RLIMIT_AS); }},
    {"prctl", [] { call(SYS_prctl, 1, 0); }},
    {"seccomp", [] { call(SYS_seccomp, 0); }},
    {"personality", [] { call(SYS_personality, 0); }},
    {"unshare", [] { call(SYS_unshare, 0); }},
    {"bpf", [] { call(SYS_bpf); }},
    {"perf_event_open", [] { call(SYS_perf_event_open); }},
    {"io_uring_setup", [] { call(SYS_io_uring_setup, 1); }},
    {"userfaultfd", [] { call(SYS_userfaultfd); }},
    {"keyctl", [] { call(SYS_keyctl); }},
    {"shmget", [] { call(SYS_shmget); }},
    {"nanosleep", [] { call(SYS_nanosleep); }},
    {"executable memory", [] { call(SYS_mmap, 0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); }},
    {"memory of a file", [] { call(SYS_mmap, 0, 4096, PROT_READ, MAP_PRIVATE, STDIN_FILENO, 0); }},
    {"shared memory", [] { call(SYS_mmap, 0, 4096, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1, 0); }},
    {"memory made executable", [] { call(SYS_mprotect, 0, 4096, PROT_READ | PROT_EXEC); }},
    {"a call that no kernel has", [] { call(9999); }},
#if defined(__x86_64__)
    {"a call of the x32 interface", [] { call(0x40000000 + SYS_getpid); }},
    {k32BitCall.data(),
     [] {
       long result = 20;  // getpid there
       asm volatile("int $0x80" : "+a"(result) : : "memory");
     }},
#endif
};

}  // namespace sluice::test
