// The values of several lattices after splat and blurs, for all channels; slicing is left.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "block_filter.hpp"
#include "densecrf/lattice_sum.hpp"
#include "simd/pixel_kernels.hpp"
#include "simd/row_kernels.hpp"

namespace densecrf {

class BlurredLattices {
 public:
  static constexpr int kTile = PixelKernels::kTile;

  // Whether all channels' rows of all vertices take no more than so many floats.
  static bool fits(const LatticeSum& sum, int channels, std::int64_t floats);

  BlurredLattices(const LatticeSum& sum, int channels);
  ~BlurredLattices();
  BlurredLattices(const BlurredLattices&) = delete;
  BlurredLattices& operator=(const BlurredLattices&) = delete;

  // One of these comes first: planes of values, or the channel in which each pixel has a 1.
  void splat_planes(const float* in, Team& team);
  void splat_labels(const std::int32_t* channel, Team& team);

  // Or the values come tile by tile, and are blurred when all pixels' are added, by one thread and
  // in ascending order: the same bits. After the first time, what was splatted before can be sliced
  // meanwhile. Needs lattices whose rows and columns have the same weights.
  bool can_add() const;
  void begin_adding();
  void add(const float* planes, std::int64_t stride, std::int64_t begin, std::int64_t end);
  void blur_added(Team& team);

  // The filters' sum at pixels [begin, end), at most a tile, as planes kTile apart.
  void slice(std::int64_t begin, std::int64_t end, float* tile) const;

  // The filters' sum at these pixels, of the channel that each was splatted to.
  void slice_own(const std::int32_t* channel, std::int64_t begin, std::int64_t end,
                 float* out) const;

 private:
  static constexpr int kBlock = RowKernels::kVector;  // channels side by side
  static constexpr std::int64_t kGrain = 2048;

  static int blocks_of(int channels) { return (channels + kBlock - 1) / kBlock; }
  static int width_of(int channels, int block) {
    return row_width(std::min(kBlock, channels - block * kBlock));
  }
  int channels_in(int block) const { return std::min(kBlock, channels_ - block * kBlock); }
  const Lattice& lattice(std::size_t term) const { return *sum_.terms[term].lattice; }
  const VertexRows& result(int block, std::size_t term) const {
    return results_[static_cast<std::size_t>(block) * sum_.terms.size() + term];
  }

  std::int64_t begin_of(const Lattice& lattice, int block) const;
  void take_memory();

  // splat(lattice, width, rows, begin, end) fills the rows of some vertices.
  void make_filters(int block);
  template <class Splat>
  void splat_and_blur(int block, Team& team, const Splat& splat);

  const LatticeSum& sum_;
  int channels_;
  std::vector<float> factors_;                         // by term: weight times the lattice's scale
  std::vector<Buffer<float>> memory_;                  // by term, for all blocks
  std::vector<std::unique_ptr<BlockFilter>> filters_;  // by block and term
  std::vector<VertexRows> results_;
  std::vector<float*> added_;  // by block and term: the rows that values are added to
};

}  // namespace densecrf
