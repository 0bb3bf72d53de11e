// Splats and blurs of several lattices for all channels at once; what is left is to slice.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "block_filter.hpp"
#include "densecrf/filter_sum.hpp"
#include "simd/pixel_kernels.hpp"
#include "simd/row_kernels.hpp"

namespace densecrf {

class Spread {
 public:
  static constexpr int kTile = Pixels::kTile;

  // Whether all channels' rows of all vertices take no more than so many floats.
  static bool fits(const std::vector<Term>& terms, int channels, BlurOrder order,
                   std::int64_t floats);

  Spread(const std::vector<Term>& terms, int channels, BlurOrder order);
  ~Spread();
  Spread(const Spread&) = delete;
  Spread& operator=(const Spread&) = delete;

  // One of these comes first: planes of values, or the channel in which each pixel has a 1.
  void splat_planes(const float* in, Team& team);
  void splat_labels(const std::int32_t* channel, Team& team);

  // The filters' sum at pixels [begin, end), at most a tile, as planes kTile apart.
  void slice(std::int64_t begin, std::int64_t end, float* tile) const;

  // The filters' sum at these pixels, of the channel that each was splatted to.
  void slice_own(const std::int32_t* channel, std::int64_t begin, std::int64_t end,
                 float* out) const;

 private:
  static constexpr int kBlock = Rows::kVector;  // channels side by side
  static constexpr std::int64_t kGrain = 2048;

  static int blocks_of(int channels) { return (channels + kBlock - 1) / kBlock; }
  static int width_of(int channels, int block) {
    return row_width(std::min(kBlock, channels - block * kBlock));
  }
  int channels_in(int block) const { return std::min(kBlock, channels_ - block * kBlock); }
  std::int64_t pixels() const { return terms_[0].lattice->pixels(); }

  std::int64_t begin_of(const Lattice& lattice, int block) const;
  void take_memory();

  // splat(lattice, width, rows, begin, end) fills the rows of some vertices.
  template <class Splat>
  void spread(int block, Team& team, const Splat& splat);

  const std::vector<Term>& terms_;
  int channels_;
  BlurOrder order_;
  std::vector<float> factors_;                  // by term, with the lattice's scale
  std::vector<Buffer<float>> memory_;           // by term, for all blocks
  std::vector<std::unique_ptr<Sweep>> sweeps_;  // by block and term
  std::vector<RowsView> results_;
};

}  // namespace densecrf
