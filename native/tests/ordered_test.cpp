// Every ordered filter against its formula on the explicit matrix.
#include <algorithm>
#include <initializer_list>

#include "check.hpp"
#include "densecrf/baselines.hpp"
#include "densecrf/grid.hpp"
#include "densecrf/pixelwise.hpp"
#include "simd/row_kernels.hpp"

using namespace densecrf;
using namespace densecrf::test;

namespace {

constexpr int kChannels = 5;

struct Problem {
  std::size_t n;
  int d;
  Team team{3};
  std::vector<float> features, scores, mass;
  Lattice lattice;
  Matrix matrix;

  Problem(std::size_t pixels, int dimension)
      : n(pixels),
        d(dimension),
        features(random_floats(n * static_cast<std::size_t>(d), 11, 3)),
        scores(random_floats(n * kChannels, 12)),
        mass(n),
        lattice(build_lattice(features.data(), static_cast<std::int64_t>(n), d, team)),
        matrix(matrix_of(lattice, Blur::kSymmetric, team)) {
    for (std::size_t a = 0; a < n; ++a)
      for (std::size_t b = 0; b < n; ++b) mass[a] += static_cast<float>(matrix[a * n + b]);
  }

  std::vector<float> levels_of(Levels levels, std::size_t c) const {
    std::vector<float> t(n);
    for (std::size_t a = 0; a < n; ++a) t[a] = levels.of(scores[c * n + a]);
    return t;
  }

  std::vector<float> extents() {
    std::vector<float> out(2 * kChannels);
    densecrf::extents({kChannels, static_cast<std::int64_t>(n)}, scores.data(), nullptr, out.data(),
                      team);
    return out;
  }

  double exact_row(std::size_t c, std::size_t a) const {
    double sum = 0;
    for (std::size_t b = 0; b < n; ++b) {
      const float here = scores[c * n + a], there = scores[c * n + b];
      sum += matrix[a * n + b] * ((here > there) - (here < there));
    }
    return sum;
  }
};

void test_levels(Problem& p) {
  for (const int count : {2, 3, 5, 6, 9, 10, 17, 40})
    for (const bool hard : {false, true})
      for (const char* isa : {"", "base", "sse2", "avx2", "avx512"}) {
        if (!select_isa(isa)) continue;
        const Levels levels{count, 0.1f, 1.1f * static_cast<float>(count - 1), hard};
        std::vector<float> out(p.n * kChannels, 1.0f);
        const auto extents = p.extents();
        filter_ordered(p.lattice, {p.scores.data(), nullptr, extents.data(), kChannels, levels},
                       p.mass.data(), Blur::kSymmetric, {out.data(), -2.0f}, p.team);
        for (std::size_t c = 0; c < kChannels; ++c) {
          const auto t = p.levels_of(levels, c);
          for (std::size_t a = 0; a < p.n; ++a)
            CHECK_NEAR(out[c * p.n + a], 1 - 2 * ordered_row(p.matrix, t, a), 3e-4);
        }
      }
  select_isa("");
}

void test_exact_orders(Problem& p) {
  const std::vector<float> ones(p.n, 1.0f);
  std::vector<float> adaptive(p.n * kChannels), halves(adaptive.size());
  filter_adaptive(p.lattice, p.scores.data(), adaptive.data(), kChannels, Blur::kSymmetric, 1 << 26,
                  p.team);
  filter_divide_and_conquer(p.features.data(), static_cast<std::int64_t>(p.n), p.d, ones.data(),
                            &p.lattice, p.scores.data(), halves.data(), kChannels, Blur::kSymmetric,
                            p.team);
  for (std::size_t c = 0; c < kChannels; ++c)
    for (std::size_t a = 0; a < p.n; ++a) {
      CHECK_NEAR(adaptive[c * p.n + a], p.exact_row(c, a), 1e-4);
      CHECK_NEAR(halves[c * p.n + a], p.exact_row(c, a), 1e-4);
    }
}

void test_literal(Problem& p) {
  const int count = 10;
  std::vector<float> out(p.n * kChannels);
  p.scores[0] = 1.0000001f;  // a rounding error beyond its range
  p.scores[1] = -1e-7f;
  filter_algorithm3(p.lattice, p.scores.data(), out.data(), kChannels, count, Blur::kSymmetric,
                    p.team);
  for (std::size_t c = 0; c < kChannels; ++c)
    for (std::size_t a = 0; a < p.n; ++a) {
      const auto level = [&](std::size_t b) {
        return std::min(std::max(p.scores[c * p.n + b], 0.0f), 1.0f) * (count - 1);
      };
      double sum = 0;
      for (std::size_t b = 0; b < p.n; ++b)
        sum += p.matrix[a * p.n + b] * ((std::floor(level(a)) >= std::floor(level(b))) -
                                        (std::ceil(level(a)) <= std::ceil(level(b))));
      CHECK_NEAR(out[c * p.n + a], sum, 1e-4);
    }
}

void test_scores_that_are_no_numbers(Problem& p) {
  for (std::size_t i = 0; i < p.scores.size(); i += 3) p.scores[i] = std::nanf("");
  for (std::size_t i = 1; i < p.scores.size(); i += 7) p.scores[i] = HUGE_VALF;
  std::vector<float> out(p.n * kChannels);
  const Levels levels{10, 0, 9, false};
  const auto extents = p.extents();
  filter_ordered(p.lattice, {p.scores.data(), nullptr, extents.data(), kChannels, levels},
                 p.mass.data(), Blur::kSymmetric, {out.data()}, p.team);
  filter_algorithm3(p.lattice, p.scores.data(), out.data(), kChannels, 10, Blur::kSymmetric,
                    p.team);
  filter_adaptive(p.lattice, p.scores.data(), out.data(), kChannels, Blur::kSymmetric, 1 << 26,
                  p.team);
  for (const float value : out) CHECK(std::isfinite(value));
}

void test_adaptive_refuses_long_lists(Problem& p) {
  std::vector<float> out(p.n * kChannels);
  bool refused = false;
  try {
    filter_adaptive(p.lattice, p.scores.data(), out.data(), kChannels, Blur::kSymmetric, 10,
                    p.team);
  } catch (const std::bad_alloc&) {
    refused = true;
  }
  CHECK(refused);
}

void test_grid() {
  const Grid grid{{4, 5, 3}, {{1, 0.5f, 0.1f}, {1, 0.6f}, {1, 0.3f, 0.2f}}};
  const auto n = static_cast<std::size_t>(grid.pixels());
  Team team(3);
  const auto rows = random_floats(n, 1), columns = random_floats(n, 2);
  const auto scores = random_floats(n * 2, 3);
  const auto tap = [&](std::size_t axis, std::int64_t x, std::int64_t y) {
    const auto& taps = grid.taps[axis];
    const auto step = static_cast<std::size_t>(x > y ? x - y : y - x);
    return step < taps.size() ? taps[step] : 0.0f;
  };
  Matrix matrix(n * n);
  std::vector<float> mass(n, 0.0f);
  for (std::size_t a = 0; a < n; ++a)
    for (std::size_t b = 0; b < n; ++b) {
      const auto at = [](std::size_t i, std::size_t divisor, std::size_t length) {
        return static_cast<std::int64_t>(i / divisor % length);
      };
      matrix[a * n + b] = rows[a] * columns[b] * tap(0, at(a, 15, 4), at(b, 15, 4)) *
                          tap(1, at(a, 3, 5), at(b, 3, 5)) * tap(2, at(a, 1, 3), at(b, 1, 3));
      mass[a] += static_cast<float>(matrix[a * n + b]);
    }
  std::vector<float> plain(2 * n), ordered(2 * n);
  const Levels levels{6, 0, 5, false};
  grid_plain(grid, scores.data(), columns.data(), rows.data(), plain.data(), 2, team);
  grid_ordered(grid, scores.data(), columns.data(), rows.data(), ordered.data(), 2, levels,
               mass.data(), team);
  for (std::size_t c = 0; c < 2; ++c) {
    std::vector<float> t(n);
    for (std::size_t a = 0; a < n; ++a) t[a] = levels.of(scores[c * n + a]);
    for (std::size_t a = 0; a < n; ++a) {
      double sum = 0;
      for (std::size_t b = 0; b < n; ++b) sum += matrix[a * n + b] * scores[c * n + b];
      CHECK_NEAR(plain[c * n + a], sum, 1e-5);
      CHECK_NEAR(ordered[c * n + a], ordered_row(matrix, t, a), 1e-5);
    }
  }
}

}  // namespace

int main() {
  for (const int d : {1, 2, 5, 9}) {
    Problem p(48, d);
    test_levels(p);
    test_exact_orders(p);
    test_literal(p);
    test_adaptive_refuses_long_lists(p);
    test_scores_that_are_no_numbers(p);
  }
  test_grid();
}
