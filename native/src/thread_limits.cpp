#include "thread_limits.hpp"

#include <algorithm>
#include <climits>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <thread>

namespace densecrf {

namespace {

// The text of a small file, empty where there is none. By C's functions: C++ streams crash where
// this module and another in the process bring a libstdc++ each.
std::string text_of(const std::string& name) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(name.c_str(), "r"),
                                                             std::fclose);
  std::string text;
  char block[4096];
  while (file) {
    const std::size_t length = std::fread(block, 1, sizeof block, file.get());
    text.append(block, length);
    if (length < sizeof block) break;
  }
  return text;
}

int processors_of(double quota, double period) {
  if (!(quota > 0) || !(period > 0)) return INT_MAX;
  return static_cast<int>(std::clamp(std::ceil(quota / period), 1.0, double{INT_MAX}));
}

// Of one group's folder: "QUOTA PERIOD" or "max PERIOD" (version 2).
int unified_quota(const std::string& folder) {
  const std::string text = text_of(folder + "/cpu.max");
  char* rest = nullptr;
  const double quota = std::strtod(text.c_str(), &rest);
  return processors_of(quota, std::strtod(rest, nullptr));
}

// Of one group's folder of the controller "cpu": two files, -1 for no limit (version 1).
int divided_quota(const std::string& folder) {
  return processors_of(std::atof(text_of(folder + "/cpu.cfs_quota_us").c_str()),
                       std::atof(text_of(folder + "/cpu.cfs_period_us").c_str()));
}

// The least quota of a group and the groups that contain it. In a container the path may be one of
// the host's: folders that are not there set no limit, and the root is always looked at.
template <class Quota>
int least_quota(const std::string& root, std::string path, const Quota& quota) {
  int least = quota(root);
  while (path.size() > 1) {
    least = std::min(least, quota(root + path));
    const std::size_t parent = path.rfind('/');
    path.resize(parent == std::string::npos ? 0 : parent);
  }
  return least;
}

}  // namespace

int quota_of(const std::string& own_groups, const std::string& root) {
  int least = INT_MAX;
  for (std::size_t from = 0, to; from < own_groups.size(); from = to + 1) {
    to = std::min(own_groups.find('\n', from), own_groups.size());
    const std::string line = own_groups.substr(from, to - from);  // "number:controllers:path"
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string path = line.substr(second + 1);
    const std::string controllers = ',' + line.substr(first + 1, second - first - 1) + ',';
    if (controllers == ",,") least = std::min(least, least_quota(root, path, unified_quota));
    if (controllers.find(",cpu,") != std::string::npos)
      least = std::min(least, least_quota(root + "/cpu", path, divided_quota));
  }
  return least;
}

#if defined(__linux__)

int quota_of_process() {
  static const int quota = quota_of(text_of("/proc/self/cgroup"), "/sys/fs/cgroup");
  return quota;
}

Processors Processors::of_calling_thread() {
  Processors own;
  if (sched_getaffinity(0, sizeof own.set, &own.set) == 0)
    own.count = std::max(1, CPU_COUNT(&own.set));
  else
    own.count = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  return own;
}

bool Processors::operator==(const Processors& other) const {
  return count == other.count && CPU_EQUAL(&set, &other.set);
}

#else

int quota_of_process() {
  return INT_MAX;
}

Processors Processors::of_calling_thread() {
  return {static_cast<int>(std::max(1u, std::thread::hardware_concurrency()))};
}

bool Processors::operator==(const Processors& other) const {
  return count == other.count;
}

#endif

}  // namespace densecrf
