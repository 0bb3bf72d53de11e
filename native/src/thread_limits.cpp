#include "thread_limits.hpp"

#include <algorithm>
#include <climits>
#include <cmath>
#include <fstream>
#include <sstream>
#include <thread>

namespace densecrf {

namespace {

int processors_of(double quota, double period) {
  if (!(quota > 0) || !(period > 0)) return INT_MAX;
  return static_cast<int>(std::clamp(std::ceil(quota / period), 1.0, double{INT_MAX}));
}

// Of one group's folder: "QUOTA PERIOD" or "max PERIOD" (version 2).
int unified_quota(const std::string& folder) {
  std::ifstream file(folder + "/cpu.max");
  double quota = 0, period = 0;
  return file >> quota >> period ? processors_of(quota, period) : INT_MAX;
}

// Of one group's folder of the controller "cpu": two files, -1 for no limit (version 1).
int divided_quota(const std::string& folder) {
  std::ifstream quota_file(folder + "/cpu.cfs_quota_us"),
      period_file(folder + "/cpu.cfs_period_us");
  double quota = 0, period = 0;
  return quota_file >> quota && period_file >> period ? processors_of(quota, period) : INT_MAX;
}

// The least quota of a group and the groups that contain it. In a container the path may be one of
// the host's: folders that are not there set no limit, and the root is always looked at.
template <class Quota>
int least_quota(const std::string& root, std::string path, const Quota& quota) {
  int least = quota(root);
  while (path.size() > 1) {
    least = std::min(least, quota(root + path));
    path.resize(std::min(path.size(), path.rfind('/')));
  }
  return least;
}

}  // namespace

int quota_of(const std::string& own_groups, const std::string& root) {
  std::istringstream lines(own_groups);  // of "number:controllers:path"
  int least = INT_MAX;
  for (std::string line; std::getline(lines, line);) {
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
  static const int quota = [] {
    std::ifstream file("/proc/self/cgroup");
    std::ostringstream own;
    own << file.rdbuf();
    return quota_of(own.str(), "/sys/fs/cgroup");
  }();
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
