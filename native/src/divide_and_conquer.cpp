#include <algorithm>
#include <functional>
#include <numeric>
#include <vector>

#include "densecrf/baselines.hpp"
#include "key_table.hpp"
#include "simplex.hpp"

namespace densecrf {

namespace {

constexpr std::int64_t kCheckEvery = 4096;

// A lattice that filters two channels once. It has only what that needs: no incidence by vertex,
// and storage that the next one uses again, since most of them hold a handful of pixels.
template <int D>
class PassingLattice {
 public:
  PassingLattice(int d, std::function<void()> checkpoint)
      : any_(d), simplices_(d), checkpoint_(std::move(checkpoint)) {}

  // Filters values, n rows of two, in place.
  void filter(const float* features, std::int64_t n, float* values, Blur blur) {
    KeyTable<D> table(d(), static_cast<std::size_t>(n / 8));
    locate(features, n, table);
    link(table);
    const std::size_t size = 2 * static_cast<std::size_t>(vertices_ + 1);
    splatted_.assign(size, 0.0f);
    scratch_.assign(size, 0.0f);
    for (std::int64_t slot = 0; slot < n * (d() + 1); ++slot) {
      float* vertex = splatted_.data() + 2 * static_cast<std::int64_t>(corner_[slot]);
      const float* row = values + slot / (d() + 1) * 2;
      vertex[0] += weight_[slot] * row[0];
      vertex[1] += weight_[slot] * row[1];
    }
    std::fill(values, values + 2 * n, 0.0f);
    const int orders = blur == Blur::kSymmetric ? 2 : 1;
    const float scale = 1.0f / (1.0f + std::ldexp(1.0f, -d())) / static_cast<float>(orders);
    for (int reversed = 0; reversed < orders; ++reversed) {
      blurred_ = splatted_;
      blur_vertices(reversed == 1);
      slice(n, scale, values);
    }
  }

 private:
  void locate(const float* features, std::int64_t n, KeyTable<D>& table) {
    corner_.resize(static_cast<std::size_t>(n * (d() + 1)));
    weight_.resize(corner_.size());
    std::int32_t key[D > 0 ? D : kMaxDimension];
    for (std::int64_t a = 0; a < n; ++a) {
      if (a % kCheckEvery == kCheckEvery - 1) checkpoint_();
      if (a % simplices_.kBlock == 0)
        simplices_.locate(features + a * d(),
                          static_cast<int>(std::min<std::int64_t>(simplices_.kBlock, n - a)));
      const auto simplex = simplices_[static_cast<int>(a % simplices_.kBlock)];
      for (int k = 0; k <= d(); ++k) {
        simplex.key(k, key);
        corner_[a * (d() + 1) + k] = table.insert(key);
        weight_[a * (d() + 1) + k] = simplex.weight(k);
      }
    }
    vertices_ = static_cast<std::int32_t>(table.size());
  }

  void link(const KeyTable<D>& table) {
    neighbour_.assign(static_cast<std::size_t>(d() + 1) * vertices_ * 2, vertices_);
    std::int32_t key[D > 0 ? D : kMaxDimension];
    for (std::int32_t v = 0; v < vertices_; ++v) {
      if (v % kCheckEvery == kCheckEvery - 1) checkpoint_();
      const std::int32_t* own = table.key(static_cast<std::size_t>(v));
      for (int j = 0; j <= d(); ++j) {
        for (int i = 0; i < d(); ++i) key[i] = own[i] - 1;
        if (j < d()) key[j] += d() + 1;
        const std::int32_t next = table.find(key, vertices_);
        axis(j)[2 * static_cast<std::int64_t>(v)] = next;
        if (next != vertices_) axis(j)[2 * static_cast<std::int64_t>(next) + 1] = v;
      }
    }
  }

  void blur_vertices(bool reversed) {
    for (int i = 0; i <= d(); ++i) {
      if (vertices_ > kCheckEvery) checkpoint_();
      const std::int32_t* along = axis(reversed ? d() - i : i);
      for (std::int64_t v = 0; v < vertices_; ++v) {
        const float* next = blurred_.data() + 2 * static_cast<std::int64_t>(along[2 * v]);
        const float* previous = blurred_.data() + 2 * static_cast<std::int64_t>(along[2 * v + 1]);
        for (int c = 0; c < 2; ++c)
          scratch_[2 * v + c] = blurred_[2 * v + c] + 0.5f * (next[c] + previous[c]);
      }
      blurred_.swap(scratch_);
    }
  }

  void slice(std::int64_t n, float scale, float* values) const {
    for (std::int64_t slot = 0; slot < n * (d() + 1); ++slot) {
      const float* vertex = blurred_.data() + 2 * static_cast<std::int64_t>(corner_[slot]);
      float* row = values + slot / (d() + 1) * 2;
      row[0] += scale * weight_[slot] * vertex[0];
      row[1] += scale * weight_[slot] * vertex[1];
    }
  }

  std::int32_t* axis(int j) {
    return neighbour_.data() + static_cast<std::int64_t>(j) * vertices_ * 2;
  }

  int d() const { return D > 0 ? D : any_; }

  int any_;
  Simplices<double> simplices_;
  std::function<void()> checkpoint_;
  std::int32_t vertices_ = 0;
  std::vector<std::int32_t> corner_, neighbour_;  // (pixel, corner); (axis, vertex, 2)
  std::vector<float> weight_, splatted_, blurred_, scratch_;
};

template <int D>
class DivideAndConquer {
 public:
  DivideAndConquer(const float* features, std::int64_t n, int d, const float* weights,
                   const Lattice* fixed, Blur blur, std::function<void()> checkpoint)
      : features_(features),
        d_(d),
        weights_(weights),
        fixed_(fixed),
        blur_(blur),
        checkpoint_(std::move(checkpoint)),
        alone_(1, [this] { return stopped(); }),
        passing_(d, checkpoint_) {
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
    const std::int64_t n = end - begin;
    since_check_ += n;
    if (since_check_ > kCheckEvery) {
      checkpoint_();
      since_check_ = 0;
    }
    const std::vector<float>& filtered =
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
  const std::vector<float>& on_own_lattice(std::int64_t begin, std::int64_t middle,
                                           std::int64_t end) {
    const std::int64_t n = end - begin;
    chosen_.resize(static_cast<std::size_t>(n * d_));
    values_.assign(static_cast<std::size_t>(2 * n), 0.0f);
    for (std::int64_t i = 0; i < n; ++i) {
      const std::int32_t a = sorted_[begin + i];
      std::copy_n(features_ + static_cast<std::int64_t>(a) * d_, d_, chosen_.data() + i * d_);
      values_[2 * i + (begin + i < middle ? 0 : 1)] = weights_[a];
    }
    passing_.filter(chosen_.data(), n, values_.data(), blur_);
    return values_;
  }

  const std::vector<float>& on_fixed_lattice(std::int64_t begin, std::int64_t middle,
                                             std::int64_t end) {
    std::vector<float> values(2 * sorted_.size(), 0.0f), filtered(values.size());
    for (std::int64_t i = begin; i < end; ++i)
      values[2 * static_cast<std::size_t>(sorted_[i]) + (i < middle ? 0 : 1)] = 1.0f;
    filter_plain(*fixed_, {values.data(), 1, 2}, {filtered.data(), 1, 2}, 2, blur_, 1.0f, false,
                 alone_);
    values_.resize(static_cast<std::size_t>(2 * (end - begin)));
    for (std::int64_t i = begin; i < end; ++i)
      std::copy_n(filtered.data() + 2 * static_cast<std::size_t>(sorted_[i]), 2,
                  values_.data() + 2 * (i - begin));
    return values_;
  }

  const float* features_;
  int d_;
  const float* weights_;
  const Lattice* fixed_;
  Blur blur_;
  std::function<void()> checkpoint_;
  Team alone_;  // for one filter call, which may be long: polls the outer team's checkpoint
  PassingLattice<D> passing_;
  std::vector<std::int32_t> sorted_;
  std::vector<float> chosen_, values_;
  std::int64_t since_check_ = 0;  // pixels; a checkpoint costs as much as a small filter call
};

}  // namespace

void filter_divide_and_conquer(const float* features, std::int64_t n, int d, const float* weights,
                               const Lattice* fixed, const float* scores, float* out, int channels,
                               Blur blur, Team& team) {
  const auto in_dimension = [&]<int D>() {
    team.run(channels, 1, [&](std::int64_t begin, std::int64_t end, int thread) {
      DivideAndConquer<D> solver(features, n, d, weights, fixed, blur,
                                 [&] { team.checkpoint(thread); });
      for (std::int64_t c = begin; c < end; ++c) solver.label(scores + c * n, out + c * n);
    });
  };
  if (d == 2)
    in_dimension.template operator()<2>();
  else if (d == 5)
    in_dimension.template operator()<5>();
  else
    in_dimension.template operator()<0>();
}

}  // namespace densecrf
