#include "sandbox/process/system_calls.h"

#include <fmt/format.h>
#include <seccomp.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <initializer_list>
#include <memory>

#include "scripting/base/error.h"

namespace sluice {

namespace {

/// libseccomp returns a negative error number.
void check(int result, const char* what) {
  if (result < 0) throw InternalError(fmt::format("seccomp: {}: {}", what, std::strerror(-result)));
}

class Filter {
 public:
  Filter() : context_(seccomp_init(SCMP_ACT_KILL_PROCESS), seccomp_release) {
    if (!context_) throw InternalError("seccomp: no filter could be made");
    check(seccomp_attr_set(context_.get(), SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS), "other architectures");
    check(seccomp_attr_set(context_.get(), SCMP_FLTATR_CTL_TSYNC, 1), "all threads");
  }

  void allow(int system_call, std::initializer_list<scmp_arg_cmp> conditions = {}) {
    check(seccomp_rule_add_array(context_.get(), SCMP_ACT_ALLOW, system_call, static_cast<unsigned>(conditions.size()),
                                 conditions.begin()),
          "a rule");
  }
  void load() { check(seccomp_load(context_.get()), "the filter is refused"); }

 private:
  std::unique_ptr<void, decltype(&seccomp_release)> context_;
};

scmp_arg_cmp is_equal(unsigned argument, scmp_datum_t value) { return {argument, SCMP_CMP_EQ, value, 0}; }
scmp_arg_cmp has_bits(unsigned argument, scmp_datum_t mask, scmp_datum_t bits) {
  return {argument, SCMP_CMP_MASKED_EQ, mask, bits};
}

/// Memory that can be written is never executed, and comes from no file.
void allow_memory(Filter& filter) {
  filter.allow(SCMP_SYS(brk));
  filter.allow(SCMP_SYS(mmap), {has_bits(2, PROT_EXEC, 0), has_bits(3, MAP_ANONYMOUS | MAP_SHARED, MAP_ANONYMOUS)});
  filter.allow(SCMP_SYS(mremap));
  filter.allow(SCMP_SYS(munmap));
  filter.allow(SCMP_SYS(madvise));
  filter.allow(SCMP_SYS(mprotect), {has_bits(2, PROT_EXEC, 0)});
}

/// What abort() does, so that it reads as a crash.
void allow_abort(Filter& filter) {
  const auto self = static_cast<scmp_datum_t>(getpid());
  filter.allow(SCMP_SYS(rt_sigprocmask));
  filter.allow(SCMP_SYS(getpid));
  filter.allow(SCMP_SYS(gettid));
  filter.allow(SCMP_SYS(tgkill), {is_equal(0, self)});
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
/// What sanitizers do when an exception is thrown and when they wait for a lock of theirs.
void allow_sanitizers(Filter& filter) {
  filter.allow(SCMP_SYS(sigaltstack));
  filter.allow(SCMP_SYS(sched_yield));
}
#endif

}  // namespace

void allow_only_tracing() {
  Filter filter;
  filter.allow(SCMP_SYS(read), {is_equal(0, STDIN_FILENO)});
  filter.allow(SCMP_SYS(write), {is_equal(0, STDOUT_FILENO)});
  filter.allow(SCMP_SYS(exit));
  filter.allow(SCMP_SYS(exit_group));
  filter.allow(SCMP_SYS(rt_sigreturn));
  filter.allow(SCMP_SYS(futex));          // locks of the C++ library
  filter.allow(SCMP_SYS(clock_gettime));  // where the kernel's shared page cannot tell the time
  allow_memory(filter);
  allow_abort(filter);
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  allow_sanitizers(filter);
#endif
  filter.load();
}

}  // namespace sluice
