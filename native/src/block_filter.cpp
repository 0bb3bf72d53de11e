#include "block_filter.hpp"

#include <bit>

#include "line_blurs.hpp"

namespace densecrf {

namespace {

constexpr int kArrays = 2;  // one for each order of blurs

}  // namespace

std::int64_t BlockFilter::floats(const Lattice& lattice, int width, bool windowed) {
  return (windowed ? 1 : kArrays) * (lattice.vertices() + kZeroRows) * width;
}

BlockFilter::BlockFilter(const Lattice& lattice, int width, Blur blur, float* memory)
    : topology_(*lattice.topology),
      width_(width),
      vertices_(lattice.vertices()),
      tiles_(Topology::tiles_of(vertices_)),
      result_(static_cast<std::size_t>(topology_.dimension) + 1),
      stages_(1),
      windowed_(false),
      external_(memory),
      zeros_(static_cast<std::size_t>(width), 0.0f) {
  add_blurs(false);
  if (blur == Blur::kSymmetric) {
    add_blurs(true);
    stages_.back().averages = true;
  }
}

BlockFilter::BlockFilter(const Lattice& lattice, int width, Blur blur, bool single_thread)
    : BlockFilter(lattice, width, blur, nullptr) {
  windowed_ = single_thread && allocate_windows();
  if (!windowed_) memory_ = topology_.row_buffers.take(floats(lattice, width_, false));
}

BlockFilter::~BlockFilter() {
  if (!external_) topology_.row_buffers.give_back(std::move(memory_), BufferCache::kMost);
}

// One blur along each axis.
void BlockFilter::add_blurs(bool reversed) {
  const int d = topology_.dimension;
  for (int i = 0; i <= d; ++i) {
    Stage stage;
    stage.axis = reversed ? d - i : i;
    stage.from = i == 0 ? 0 : stages_.size() - 1;
    if (reversed && !topology_.reversed.empty())
      stage.runs = &topology_.reversed[static_cast<std::size_t>(i)];
    stages_.push_back(stage);
  }
}

// Whether a later stage has still to read this tile of a stage's rows. Neighbours are mutual: the
// last to read a tile is its farthest neighbour.
bool BlockFilter::needed(std::size_t stage, std::int64_t tile, std::int64_t sliced) const {
  for (std::size_t s = stage + 1; s < stages_.size(); ++s) {
    const Stage& reader = stages_[s];
    if (reader.from == stage && reader.done <= topology_.reach_of(reader.axis)[tile]) return true;
  }
  if (stage != result_) return false;
  return stages_.back().done <= tile || sliced <= topology_.last_pixel[tile];
}

std::int64_t BlockFilter::window_rows(const Stage& stage) const {
  if (stage.averages) return 0;
  return kTile * static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(stage.window)));
}

// Allocates for each stage the rows that a dry run of the schedule holds at most; false where that
// is no less than all rows.
bool BlockFilter::allocate_windows() {
  schedule([](std::int64_t) {}, [](const Stage&, std::int64_t) {}, [](std::int64_t) {});
  std::int64_t rows = 0;
  for (const Stage& stage : stages_) rows += window_rows(stage);
  if (rows >= vertices_) return false;
  memory_ = topology_.row_buffers.take(rows * width_);
  for (Stage& stage : stages_) stage.mask = window_rows(stage) - 1;
  use_width(width_);
  return true;
}

void BlockFilter::use_width(int width) {
  width_ = width;
  float* at = memory_.data();
  for (Stage& stage : stages_) {
    stage.rows = at;
    at += window_rows(stage) * width_;
  }
}

void BlockFilter::blur_tile(const Stage& stage, std::int64_t tile) const {
  if (!stage.runs) {
    blur(stage, tile * kTile, std::min(vertices_, (tile + 1) * kTile));
    return;
  }
  const std::vector<std::int32_t>& first = stage.runs->first;
  for (std::int32_t i = first[tile]; i < first[tile + 1]; ++i)
    blur(stage, stage.runs->intervals[i].first, stage.runs->intervals[i].second);
}

void BlockFilter::blur(const Stage& stage, std::int64_t begin, std::int64_t end) const {
  const Stage& from = stages_[stage.from];
  float* out = own_rows(stage.averages ? stages_[result_] : stage, begin);
  row_kernels().blur(topology_.axis(stage.axis), topology_.vertices, {from.rows, from.mask},
                     zeros_.data(), own_rows(from, begin), stage.averages, out, width_, begin, end);
}

// The columns that go through all of their blurs before the next: so many that the lattice's rows
// stay in the cache, or as many as the registers hold where even one vector's rows would not.
int BlockFilter::columns_at_once() const {
  constexpr std::int64_t kCache = 3 << 18;  // bytes of a core's own cache
  if (width_ <= RowKernels::kVector) return width_;
  const std::int64_t bytes = 4 * vertices_ * RowKernels::kVector;
  if (bytes <= kCache) return RowKernels::kVector;
  const int parts = (width_ + RowKernels::kMostColumns - 1) / RowKernels::kMostColumns;
  return (width_ / RowKernels::kVector + parts - 1) / parts * RowKernels::kVector;
}

// All blurs, in place. A task is some columns of one order of the axes.
void BlockFilter::blur_rows(Team& team) {
  std::fill_n(forward_rows() + vertices_ * width_, kZeroRows * width_, 0.0f);
  if (symmetric()) std::fill_n(reversed_rows() + vertices_ * width_, kZeroRows * width_, 0.0f);
  const int columns = columns_at_once();
  const std::int64_t groups = (width_ + columns - 1) / columns;
  const int orders = symmetric() ? 2 : 1;
  blur_along_lines(
      topology_, orders * groups, team, [&](std::int64_t task) { return task % orders == 1; },
      [&](std::int64_t task, const Topology::Lines& lines, std::int64_t begin, std::int64_t end) {
        const auto first = static_cast<int>(task / orders) * columns;
        float* own = (task % orders == 1 ? reversed_rows() : forward_rows()) + first;
        row_kernels().blur_lines(lines.begin, begin, end, topology_.vertices, own, width_,
                                 std::min(columns, width_ - first));
      });
  if (symmetric()) average_orders(team);
}

// The mean of both orders, where they differ.
void BlockFilter::average_orders(Team& team) {
  float* forward = forward_rows();
  const float* reversed = reversed_rows();
  const auto average = [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t at = begin * width_; at < end * width_; ++at)
      forward[at] = 0.5f * (reversed[at] + forward[at]);
  };
  if (topology_.reversed.empty()) {
    team.run(vertices_, 1024,
             [&](std::int64_t begin, std::int64_t end, int) { average(begin, end); });
    return;
  }
  const Topology::Runs& wanted = topology_.reversed.back();
  team.run(static_cast<std::int64_t>(wanted.intervals.size()), 64,
           [&](std::int64_t begin, std::int64_t end, int) {
             for (std::int64_t i = begin; i < end; ++i)
               average(wanted.intervals[i].first, wanted.intervals[i].second);
           });
}

}  // namespace densecrf
