#include "block_filter.hpp"

#include <bit>

namespace densecrf {

namespace {

constexpr int kArrays = 2;  // one for each order of blurs

}  // namespace

std::int64_t Sweep::floats(const Lattice& lattice, int width, bool windowed) {
  return (windowed ? 1 : kArrays) * (lattice.vertices() + kSpare) * width;
}

Sweep::Sweep(const Lattice& lattice, int width, BlurOrder order, float* memory)
    : topology_(*lattice.topology),
      width_(width),
      vertices_(lattice.vertices()),
      blocks_(Topology::blocks_of(vertices_)),
      result_(static_cast<std::size_t>(topology_.dimension) + 1),
      stages_(1),
      windowed_(false),
      given_(memory),
      zeros_(static_cast<std::size_t>(width), 0.0f) {
  add_chain(false);
  if (order == BlurOrder::kSymmetric) {
    add_chain(true);
    stages_.back().joins = true;
  }
}

Sweep::Sweep(const Lattice& lattice, int width, BlurOrder order, bool alone)
    : Sweep(lattice, width, order, nullptr) {
  windowed_ = alone && keep_windows();
  if (!windowed_) memory_ = topology_.shelf.take(floats(lattice, width_, false));
}

Sweep::~Sweep() {
  if (!given_) topology_.shelf.leave(std::move(memory_), Shelf::kMost);
}

// One blur along each axis.
void Sweep::add_chain(bool reversed) {
  const int d = topology_.dimension;
  for (int i = 0; i <= d; ++i) {
    Stage stage;
    stage.axis = reversed ? d - i : i;
    stage.from = i == 0 ? 0 : stages_.size() - 1;
    if (reversed && !topology_.reversed.empty())
      stage.some = &topology_.reversed[static_cast<std::size_t>(i)];
    stages_.push_back(stage);
  }
}

// Whether a stage still to come reads this block of a stage's rows. Neighbours are mutual: the last
// to read a block is its farthest neighbour.
bool Sweep::needed(std::size_t stage, std::int64_t block, std::int64_t sliced) const {
  for (std::size_t s = stage + 1; s < stages_.size(); ++s) {
    const Stage& reader = stages_[s];
    if (reader.from == stage && reader.done <= topology_.reach_of(reader.axis)[block]) return true;
  }
  if (stage != result_) return false;
  return stages_.back().done <= block || sliced <= topology_.last_pixel[block];
}

std::int64_t Sweep::window_rows(const Stage& stage) const {
  if (stage.joins) return 0;
  return kBlock *
         static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(stage.window)));
}

// Gives each stage as many rows as a rehearsal of the sweep takes; false where that saves little.
bool Sweep::keep_windows() {
  schedule([](std::int64_t) {}, [](const Stage&, std::int64_t) {}, [](std::int64_t) {});
  std::int64_t rows = 0;
  for (const Stage& stage : stages_) rows += window_rows(stage);
  if (rows >= vertices_) return false;
  memory_ = topology_.shelf.take(rows * width_);
  for (Stage& stage : stages_) stage.mask = window_rows(stage) - 1;
  use_width(width_);
  return true;
}

void Sweep::use_width(int width) {
  width_ = width;
  float* at = memory_.data();
  for (Stage& stage : stages_) {
    stage.rows = at;
    at += window_rows(stage) * width_;
  }
}

void Sweep::blur_block(const Stage& stage, std::int64_t block) const {
  if (!stage.some) {
    blur(stage, block * kBlock, std::min(vertices_, (block + 1) * kBlock));
    return;
  }
  const std::vector<std::int32_t>& first = stage.some->first;
  for (std::int32_t i = first[block]; i < first[block + 1]; ++i)
    blur(stage, stage.some->intervals[i].first, stage.some->intervals[i].second);
}

void Sweep::blur(const Stage& stage, std::int64_t begin, std::int64_t end) const {
  const Stage& from = stages_[stage.from];
  float* out = own_rows(stage.joins ? stages_[result_] : stage, begin);
  rows().blur(topology_.axis(stage.axis), topology_.vertices, {from.rows, from.mask}, zeros_.data(),
              own_rows(from, begin), stage.joins, out, width_, begin, end);
}

// The columns that go through all of their blurs before the next: so many that the lattice's stay
// in the cache, or as many as can be had where even the fewest would not.
int Sweep::columns_at_once() const {
  constexpr std::int64_t kCache = 3 << 18;  // floats' bytes that a processor's own cache holds
  if (width_ <= Rows::kVector) return width_;
  const std::int64_t bytes = 4 * vertices_ * Rows::kVector;
  if (bytes <= kCache) return Rows::kVector;
  const int parts = (width_ + Rows::kMostColumns - 1) / Rows::kMostColumns;
  return (width_ / Rows::kVector + parts - 1) / parts * Rows::kVector;
}

// All blurs, in place. Threads take columns and orders of their own, or, where there are too few,
// parts of every blur.
void Sweep::blur_rows(Team& team) {
  const int columns = columns_at_once();
  const std::int64_t groups = (width_ + columns - 1) / columns;
  const std::int64_t tasks = symmetric() ? 2 * groups : groups;
  const auto blur_lines = [&](const Topology::Lines& lines, std::int64_t begin, std::int64_t end,
                              std::int64_t task) {
    const bool reversed = symmetric() && task % 2 == 1;
    const auto first = static_cast<int>(symmetric() ? task / 2 : task) * columns;
    float* own = (reversed ? reversed_rows() : forward_rows()) + first;
    rows().blur_lines(lines.begin, begin, end, topology_.vertices, own, width_,
                      std::min(columns, width_ - first));
  };
  const auto axis_lines = [&](std::int64_t task, int i) {
    return topology_.lines_of(symmetric() && task % 2 == 1 ? topology_.dimension - i : i);
  };
  if (tasks >= team.size()) {
    team.run(tasks, 1, [&](std::int64_t task, std::int64_t, int thread) {
      for (int i = 0; i <= topology_.dimension; ++i) {
        team.checkpoint(thread);
        const Topology::Lines lines = axis_lines(task, i);
        blur_lines(lines, 0, lines.length, task);
      }
    });
  } else {
    for (std::int64_t task = 0; task < tasks; ++task)
      for (int i = 0; i <= topology_.dimension; ++i) {
        const Topology::Lines lines = axis_lines(task, i);
        team.run(lines.length, 1024, [&](std::int64_t begin, std::int64_t end, int) {
          blur_lines(lines, lines.border(begin, topology_.vertices),
                     lines.border(end, topology_.vertices), task);
        });
      }
  }
  if (symmetric()) join_orders(team);
}

// The mean of both orders, where they differ.
void Sweep::join_orders(Team& team) {
  float* forward = forward_rows();
  const float* reversed = reversed_rows();
  const auto join = [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t at = begin * width_; at < end * width_; ++at)
      forward[at] = 0.5f * (reversed[at] + forward[at]);
  };
  if (topology_.reversed.empty()) {
    team.run(vertices_, 1024, [&](std::int64_t begin, std::int64_t end, int) { join(begin, end); });
    return;
  }
  const Topology::Runs& wanted = topology_.reversed.back();
  team.run(static_cast<std::int64_t>(wanted.intervals.size()), 64,
           [&](std::int64_t begin, std::int64_t end, int) {
             for (std::int64_t i = begin; i < end; ++i)
               join(wanted.intervals[i].first, wanted.intervals[i].second);
           });
}

}  // namespace densecrf
