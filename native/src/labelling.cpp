#include "densecrf/labelling.hpp"

#include <algorithm>
#include <memory>

#include "blurred_lattices.hpp"
#include "densecrf/entries.hpp"
#include "deterministic_sums.hpp"
#include "present_labels.hpp"

namespace densecrf {

namespace {

constexpr int kTile = BlurredLattices::kTile;

// How much of each pixel's mass lies on each of the present labels: their indicators, filtered.
// At once where that takes little memory; otherwise as planes.
class Support {
 public:
  Support(const LatticeSum& sum, std::int64_t n, const PresentLabels& present, Team& team)
      : n_(n), present_(present), entries_(sum.entries), blurred_(sum, present.count()) {
    if (sum.terms.empty()) return;
    constexpr int kGenerous = 16;  // planes' worth of floats, beside one for each label
    if (BlurredLattices::fits(sum, present.count(), (kGenerous + present.count()) * n_)) {
      blurred_.splat_labels(present.of_pixel.data(), team);
      return;
    }
    const std::int64_t size = present.count() * n_;
    Buffer<float> indicators(size);
    std::fill(indicators.data(), indicators.data() + size, 0.0f);
    for (std::int64_t a = 0; a < n_; ++a) indicators[channel(a) * n_ + a] = 1.0f;
    filtered_.reset(size);
    filter_one_by_one(sum, {present.count(), n_}, indicators.data(), filtered_.data(), team);
  }

  // Of pixels [begin, end), at most a tile, as planes kTile apart.
  void tile(std::int64_t begin, std::int64_t end, float* out) const {
    if (filtered_.size() == 0)
      blurred_.slice(begin, end, out);
    else
      for (int i = 0; i < present_.count(); ++i)
        std::copy_n(filtered_.data() + i * n_ + begin, end - begin, out + i * kTile);
    if (entries_) entries_->add_support(present_.of_pixel.data(), begin, end, out, kTile);
  }

  // Of pixels [begin, end), on their own labels.
  void own(std::int64_t begin, std::int64_t end, float* out) const {
    if (filtered_.size() == 0)
      blurred_.slice_own(present_.of_pixel.data(), begin, end, out);
    else
      for (std::int64_t a = begin; a < end; ++a) out[a - begin] = filtered_[channel(a) * n_ + a];
    if (entries_) entries_->add_own_support(present_.of_pixel.data(), begin, end, out);
  }

  std::int32_t channel(std::int64_t a) const { return present_.of_pixel[a]; }

 private:
  std::int64_t n_;
  const PresentLabels& present_;
  const Entries* entries_;
  BlurredLattices blurred_;
  Buffer<float> filtered_;
};

}  // namespace

void total_mass(const LatticeSum& sum, std::int64_t n, float* out, Team& team) {
  const std::vector<std::int64_t> same(static_cast<std::size_t>(n), 0);
  const PresentLabels present(same.data(), n, 1, team);
  const Support support(sum, n, present, team);
  team.run(n, chunk_of(n), [&](std::int64_t begin, std::int64_t end, int) {
    support.own(begin, end, out + begin);
  });
}

std::array<double, 3> potts_icm_moves(const LatticeSum& sum, Planes planes, const float* phi,
                                      const std::int64_t* labels, const float* mass,
                                      const float* own, std::int64_t* best, float* gain,
                                      Team& team) {
  const PresentLabels present(labels, planes.n, planes.labels, team);
  const Support support(sum, planes.n, present, team);
  return sum_over_chunks<3>(
      planes.n, team, [&](std::int64_t begin, std::int64_t end, double* sums) {
        std::vector<float> tile(static_cast<std::size_t>(present.count()) * kTile);
        float others[kTile], equal[kTile];
        for (std::int64_t a = begin; a < end; a += kTile) {
          const int count = static_cast<int>(std::min<std::int64_t>(kTile, end - a));
          support.tile(a, a + count, tile.data());
          for (int p = 0; p < count; ++p) {
            others[p] = mass[a + p] - own[a + p];
            equal[p] = tile[support.channel(a + p) * kTile + p];
          }
          for (int i = 0; i < present.count(); ++i)  // what all the other labels' pixels charge
            for (int p = 0; p < count; ++p) tile[i * kTile + p] = others[p] - tile[i * kTile + p];
          for (int p = 0; p < count; ++p)  // exactly nothing where all have this label
            tile[support.channel(a + p) * kTile + p] = mass[a + p] - equal[p];
          pixel_kernels().icm_moves({planes.n, planes.labels, count, nullptr}, phi + a, tile.data(),
                                    kTile, present.labels.data(), present.count(), others,
                                    labels + a, best + a, gain + a, sums);
        }
      });
}

}  // namespace densecrf
