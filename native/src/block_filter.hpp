// Splat, blurs and slice of one block of channels on one lattice.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "densecrf/filter.hpp"
#include "densecrf/lattice.hpp"
#include "densecrf/parallel.hpp"
#include "simd/row_kernels.hpp"

namespace densecrf {

// One block of channels, in one of two ways that compute the same bits.
//
// In one sweep: splat and blurs are stages over tiles of vertices. A stage can compute a tile as
// soon as the stage that it reads is far enough ahead, and a tile's rows are released once no later
// stage reads them. How far follows from the neighbours (Topology::reach). Where neighbours are
// near each other, as with spatial kernels, every stage holds a window of a few tiles, which stay
// in the cache; pass after pass over all vertices would fetch every row from memory each time.
//
// Axis by axis, where windows would be as large as the lattice or where threads share the block: in
// place along the lines of each axis, every row read and written once per axis.
class BlockFilter {
 public:
  // `single_thread`: one thread does all of it, in one sweep where windows are small.
  BlockFilter(const Lattice& lattice, int width, Blur blur, bool single_thread);

  // In floats(lattice, width, false) floats of the caller's memory; for splat_and_blur() only.
  BlockFilter(const Lattice& lattice, int width, Blur blur, float* memory);
  ~BlockFilter();
  BlockFilter(const BlockFilter&) = delete;
  BlockFilter& operator=(const BlockFilter&) = delete;

  // Whether it holds windows of rows: then in_one_sweep() is to be called, otherwise axis_by_axis()
  // or splat_and_blur().
  bool windowed() const { return windowed_; }

  // Floats that are allocated at most, with windows and without.
  static std::int64_t floats(const Lattice& lattice, int width, bool windowed);

  // Sets the floats of a row, at most those given to the constructor.
  void use_width(int width);

  // splat(rows, begin, end) fills the rows of some vertices, the first of them at `rows`;
  // slice(rows, begin, end) reads rows for some pixels; checkpoint() is called once per tile.
  template <class Splat, class Slice, class Checkpoint>
  void in_one_sweep(Splat&& splat, Slice&& slice, Checkpoint&& checkpoint) {
    schedule(
        [&](std::int64_t tile) {
          const std::int64_t begin = tile * kTile;
          splat(own_rows(stages_[0], begin), begin, std::min(vertices_, begin + kTile));
          checkpoint();
        },
        [&](const Stage& stage, std::int64_t tile) { blur_tile(stage, tile); },
        [&](std::int64_t tile) {
          slice(result(), tile * kTile, std::min(topology_.pixels, (tile + 1) * kTile));
        });
  }

  template <class Splat, class Slice>
  void axis_by_axis(Splat&& splat, Slice&& slice, Team& team) {
    constexpr std::int64_t kPixels = 2048;
    const VertexRows result = splat_and_blur(splat, team);
    team.run(topology_.pixels, kPixels,
             [&](std::int64_t begin, std::int64_t end, int) { slice(result, begin, end); });
  }

  // Without the slice: returns the rows to slice from.
  template <class Splat>
  VertexRows splat_and_blur(Splat&& splat, Team& team) {
    constexpr std::int64_t kVertices = 512;
    float* forward = forward_rows();
    float* reversed = symmetric() ? reversed_rows() : nullptr;
    team.run(vertices_, kVertices, [&](std::int64_t begin, std::int64_t end, int) {
      splat(forward + begin * width_, begin, end);
      if (reversed)
        std::copy(forward + begin * width_, forward + end * width_, reversed + begin * width_);
    });
    blur_rows(team);
    return {forward, kAllRows};
  }

  // Rows beside those of the result, for the next values: zeros, to which each pixel's are added.
  // Then blur_next() takes the place of splat_and_blur().
  float* next_rows() {
    std::fill_n(reversed_rows(), vertices_ * width_, 0.0f);
    return reversed_rows();
  }
  VertexRows blur_next(Team& team) {
    exchanged_ = !exchanged_;
    return splat_and_blur([](float*, std::int64_t, std::int64_t) {}, team);
  }

 private:
  static constexpr std::int64_t kTile = Topology::kTile;
  static constexpr std::int64_t kZeroRows = 1;         // behind the vertices' rows: see blur_lines
  static constexpr std::int64_t kAllRows = INT64_MAX;  // the mask of an array of all rows

  struct Stage {
    int axis = 0;
    std::size_t from = 0;   // the stage whose neighbouring rows it reads
    bool averages = false;  // has no rows: its mean with the result's rows replaces those
    const Topology::Runs* runs = nullptr;  // the vertices that it computes; null: all
    float* rows = nullptr;
    std::int64_t mask = 0;      // a vertex's row is at its number & mask
    std::int64_t done = 0;      // tiles written
    std::int64_t released = 0;  // tiles that no later stage reads
    std::int64_t window = 0;    // most tiles between the two
  };

  template <class SplatTile, class BlurTile, class SliceTile>
  void schedule(SplatTile&& splat, BlurTile&& blur, SliceTile&& slice);
  void add_blurs(bool reversed);
  bool allocate_windows();
  std::int64_t window_rows(const Stage& stage) const;
  bool needed(std::size_t stage, std::int64_t tile, std::int64_t sliced) const;
  void blur_tile(const Stage& stage, std::int64_t tile) const;
  void blur(const Stage& stage, std::int64_t begin, std::int64_t end) const;
  void blur_rows(Team& team);
  int columns_at_once() const;
  void average_orders(Team& team);
  // The two arrays of rows.
  float* array(bool second) {
    return (external_ ? external_ : memory_.data()) +
           (second ? (vertices_ + kZeroRows) * width_ : 0);
  }
  float* forward_rows() { return array(exchanged_); }
  float* reversed_rows() { return array(!exchanged_); }
  bool symmetric() const { return stages_.back().averages; }
  float* own_rows(const Stage& stage, std::int64_t vertex) const {
    return stage.rows + (vertex & stage.mask) * width_;
  }
  VertexRows result() const { return {stages_[result_].rows, stages_[result_].mask}; }

  const Topology& topology_;
  int width_;
  std::int64_t vertices_;
  std::int64_t tiles_;
  std::size_t result_;         // the stage whose rows are sliced
  std::vector<Stage> stages_;  // the splat, the blurs of one order, those of the other
  bool windowed_;
  Buffer<float> memory_;
  float* external_ = nullptr;
  bool exchanged_ = false;    // which array holds the forward order's rows
  std::vector<float> zeros_;  // the row of a missing vertex
};

// After each splatted tile, every later stage computes all tiles that it can.
template <class SplatTile, class BlurTile, class SliceTile>
void BlockFilter::schedule(SplatTile&& splat, BlurTile&& blur, SliceTile&& slice) {
  for (Stage& stage : stages_) stage.done = stage.released = 0;
  const std::int64_t pixel_tiles = Topology::tiles_of(topology_.pixels);
  std::int64_t sliced = 0;
  while (stages_[0].done < tiles_) {
    splat(stages_[0].done);
    ++stages_[0].done;
    for (std::size_t s = 1; s < stages_.size(); ++s) {
      Stage& stage = stages_[s];
      const std::int32_t* ahead = topology_.reach_of(stage.axis);
      for (; stage.done < tiles_ && stages_[stage.from].done > ahead[stage.done] &&
             (!stage.averages || stages_[result_].done > stage.done);
           ++stage.done)
        blur(stage, stage.done);
    }
    for (; sliced < pixel_tiles && stages_.back().done > topology_.pixel_reach[sliced]; ++sliced)
      slice(sliced);
    for (std::size_t s = 0; s < stages_.size(); ++s) {
      Stage& stage = stages_[s];
      stage.window = std::max(stage.window, stage.done - stage.released);
      while (stage.released < stage.done && !needed(s, stage.released, sliced)) ++stage.released;
    }
  }
}

}  // namespace densecrf
