// What the system grants this process: the processors of the calling thread, control groups' quota.
#pragma once

#include <string>

#if defined(__linux__)
#include <sched.h>
#endif

namespace densecrf {

// The processors that the calling thread may run on.
struct Processors {
  int count = 1;
#if defined(__linux__)
  cpu_set_t set{};
#endif

  static Processors of_calling_thread();
  bool operator==(const Processors& other) const;
};

// Processors' worth of time that control groups (versions 1 and 2, as containers use them) grant
// the process, rounded up; INT_MAX where they set no limit. Read once. `root` is for tests.
int quota_of_process();
int quota_of(const std::string& own_groups, const std::string& root);

}  // namespace densecrf
