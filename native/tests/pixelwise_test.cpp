// The projection onto the simplex against sorting, and the bound against a plain loop.
#include "densecrf/pixelwise.hpp"

#include <algorithm>
#include <numeric>
#include <vector>

#include "check.hpp"

using namespace densecrf;
using namespace densecrf::test;

namespace {

std::vector<double> project_by_sorting(std::vector<double> z) {
  std::vector<double> sorted = z;
  std::sort(sorted.rbegin(), sorted.rend());
  double sum = 0, tau = 0;
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    sum += sorted[i];
    const double candidate = (sum - 1) / static_cast<double>(i + 1);
    if (sorted[i] > candidate) tau = candidate;
  }
  for (double& value : z) value = std::max(value - tau, 0.0);
  return z;
}

void test_projection(int labels, float scale, float shift, Team& team) {
  const std::int64_t n = 1000;
  auto z = random_floats(static_cast<std::size_t>(labels * n), 1, scale);
  for (float& value : z) value += shift;
  std::vector<float> out(z.size());
  project_simplex({labels, n}, z.data(), out.data(), team);
  for (std::int64_t a = 0; a < n; ++a) {
    std::vector<double> column;
    for (int i = 0; i < labels; ++i) column.push_back(z[static_cast<std::size_t>(i * n + a)]);
    const auto expected = project_by_sorting(column);
    for (int i = 0; i < labels; ++i)
      CHECK_NEAR(out[static_cast<std::size_t>(i * n + a)], expected[static_cast<std::size_t>(i)],
                 1e-5);
  }
  project_simplex({labels, n}, z.data(), z.data(), team);  // in place
  CHECK(z == out);
}

void test_lower_bound(Team& team) {
  const int labels = 7;
  const std::int64_t n = 20'011;
  const auto phi = random_floats(static_cast<std::size_t>(labels * n), 1);
  const auto r = random_floats(phi.size(), 2);
  double expected = 0;
  for (std::int64_t a = 0; a < n; ++a) {
    float least = HUGE_VALF;
    for (int i = 0; i < labels; ++i) {
      const auto at = static_cast<std::size_t>(i * n + a);
      least = std::min(least, phi[at] + 0.5f * r[at]);
    }
    expected += least;
  }
  Team alone(1);
  std::vector<float> each(static_cast<std::size_t>(n));
  const double bound = lower_bound({labels, n}, phi.data(), r.data(), 0.5f, each.data(), team);
  CHECK_NEAR(std::accumulate(each.begin(), each.end(), 0.0), expected, 1e-6 * std::fabs(expected));
  CHECK_NEAR(bound, expected, 1e-6 * std::fabs(expected));
  CHECK(bound == lower_bound({labels, n}, phi.data(), r.data(), 0.5f, nullptr, alone));
}

}  // namespace

int main() {
  Team team(3);
  for (const int labels : {1, 2, 5, 21})
    for (const float scale : {0.1f, 1.0f, 30.0f}) {
      test_projection(labels, scale, 0, team);
      test_projection(labels, scale, -100, team);
    }
  test_projection(5, 1e8f, 0, team);
  test_lower_bound(team);
}
