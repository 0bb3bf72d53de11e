#include <algorithm>
#include <functional>
#include <numeric>
#include <vector>

#include "densecrf/baselines.hpp"

namespace densecrf {

namespace {

class DivideAndConquer {
 public:
  DivideAndConquer(const float* features, std::int64_t n, int d, const float* weights,
                   const Lattice* fixed, BlurOrder order, std::function<void()> checkpoint)
      : features_(features),
        d_(d),
        weights_(weights),
        fixed_(fixed),
        order_(order),
        checkpoint_(std::move(checkpoint)),
        alone_(1, [this] { return stopped(); }) {
    sorted_.resize(static_cast<std::size_t>(n));
  }

  void label(const float* scores, float* out) {
    std::iota(sorted_.begin(), sorted_.end(), 0);
    std::stable_sort(sorted_.begin(), sorted_.end(),
                     [&](std::int32_t a, std::int32_t b) { return scores[a] < scores[b]; });
    std::fill(out, out + sorted_.size(), 0.0f);
    recurse(scores, out, 0, static_cast<std::int64_t>(sorted_.size()));
  }

 private:
  bool stopped() const {
    try {
      checkpoint_();
      return false;
    } catch (const Interrupted&) {
      return true;
    }
  }

  // Where to cut [begin, end): between two different scores, as near to the middle as can be;
  // `end` where all are equal, which contributes nothing.
  std::int64_t cut(const float* scores, std::int64_t begin, std::int64_t end) const {
    const std::int64_t middle = begin + (end - begin) / 2;
    const float at = scores[sorted_[middle]];
    std::int64_t low = middle, high = middle;
    while (low > begin && scores[sorted_[low - 1]] == at) --low;
    while (high < end && scores[sorted_[high]] == at) ++high;
    if (low == begin) return high;
    return high == end || middle - low <= high - middle ? low : high;
  }

  void recurse(const float* scores, float* out, std::int64_t begin, std::int64_t end) {
    if (end - begin < 2) return;
    const std::int64_t middle = cut(scores, begin, end);
    if (middle == end) return;
    filter_across(out, begin, middle, end);
    recurse(scores, out, begin, middle);
    recurse(scores, out, middle, end);
  }

  // Adds what the lower half receives from the upper (negative) and the upper from the lower.
  void filter_across(float* out, std::int64_t begin, std::int64_t middle, std::int64_t end) {
    checkpoint_();
    const std::int64_t n = end - begin;
    const auto filtered =
        fixed_ ? on_fixed_lattice(begin, middle, end) : on_own_lattice(begin, middle, end);
    for (std::int64_t i = 0; i < n; ++i) {
      float& target = out[sorted_[begin + i]];
      if (begin + i < middle)
        target -= filtered[2 * i + 1];
      else
        target += filtered[2 * i];
    }
  }

  // Two channels, the lower half's weights and the upper half's, filtered; rows in sorted order.
  std::vector<float> on_own_lattice(std::int64_t begin, std::int64_t middle, std::int64_t end) {
    const std::int64_t n = end - begin;
    std::vector<float> features(static_cast<std::size_t>(n * d_));
    std::vector<float> values(static_cast<std::size_t>(2 * n), 0.0f), filtered(values.size());
    for (std::int64_t i = 0; i < n; ++i) {
      const std::int32_t a = sorted_[begin + i];
      std::copy_n(features_ + static_cast<std::int64_t>(a) * d_, d_, features.data() + i * d_);
      values[2 * i + (begin + i < middle ? 0 : 1)] = weights_[a];
    }
    filter_plain(build_lattice(features.data(), n, d_, alone_), {values.data(), 1, 2},
                 {filtered.data(), 1, 2}, 2, order_, 1.0f, false, alone_);
    return filtered;
  }

  std::vector<float> on_fixed_lattice(std::int64_t begin, std::int64_t middle, std::int64_t end) {
    std::vector<float> values(2 * sorted_.size(), 0.0f), filtered(values.size());
    for (std::int64_t i = begin; i < end; ++i)
      values[2 * static_cast<std::size_t>(sorted_[i]) + (i < middle ? 0 : 1)] = 1.0f;
    filter_plain(*fixed_, {values.data(), 1, 2}, {filtered.data(), 1, 2}, 2, order_, 1.0f, false,
                 alone_);
    std::vector<float> rows(static_cast<std::size_t>(2 * (end - begin)));
    for (std::int64_t i = begin; i < end; ++i)
      std::copy_n(filtered.data() + 2 * static_cast<std::size_t>(sorted_[i]), 2,
                  rows.data() + 2 * (i - begin));
    return rows;
  }

  const float* features_;
  int d_;
  const float* weights_;
  const Lattice* fixed_;
  BlurOrder order_;
  std::function<void()> checkpoint_;
  Team alone_;  // for one filtering, which may be long: it asks the outer team whether to go on
  std::vector<std::int32_t> sorted_;
};

}  // namespace

void filter_divide_and_conquer(const float* features, std::int64_t n, int d, const float* weights,
                               const Lattice* fixed, const float* scores, float* out, int channels,
                               BlurOrder order, Team& team) {
  team.run(channels, 1, [&](std::int64_t begin, std::int64_t end, int thread) {
    DivideAndConquer solver(features, n, d, weights, fixed, order,
                            [&] { team.checkpoint(thread); });
    for (std::int64_t c = begin; c < end; ++c) solver.label(scores + c * n, out + c * n);
  });
}

}  // namespace densecrf
