#include "blurred_lattices.hpp"

#include <algorithm>
#include <utility>

#include "present_labels.hpp"

namespace densecrf {

bool BlurredLattices::fits(const LatticeSum& sum, int channels, std::int64_t floats) {
  std::int64_t needed = 0;
  for (const auto& term : sum.terms)
    for (int b = 0; b < blocks_of(channels); ++b)
      needed += (sum.blur == Blur::kSymmetric ? 2 : 1) * std::int64_t{term.lattice->vertices()} *
                width_of(channels, b);
  return needed <= floats;
}

BlurredLattices::BlurredLattices(const LatticeSum& sum, int channels)
    : sum_(sum), channels_(channels) {
  for (const auto& term : sum.terms)
    factors_.push_back(static_cast<float>(term.weight) * term.lattice->scale());
}

BlurredLattices::~BlurredLattices() {
  for (std::size_t i = 0; i < memory_.size(); ++i)
    lattice(i).topology->row_buffers.give_back(std::move(memory_[i]));
}

// Where a block's rows begin, or, for the one behind the last, how much they take together.
std::int64_t BlurredLattices::begin_of(const Lattice& lattice, int block) const {
  std::int64_t floats = 0;
  for (int b = 0; b < block; ++b)
    floats += BlockFilter::floats(lattice, width_of(channels_, b), false);
  return floats;
}

void BlurredLattices::take_memory() {
  for (const auto& term : sum_.terms)
    memory_.push_back(
        term.lattice->topology->row_buffers.take(begin_of(*term.lattice, blocks_of(channels_))));
}

void BlurredLattices::make_filters(int block) {
  if (memory_.empty()) take_memory();
  for (std::size_t i = 0; i < sum_.terms.size(); ++i)
    filters_.push_back(
        std::make_unique<BlockFilter>(lattice(i), width_of(channels_, block), sum_.blur,
                                      memory_[i].data() + begin_of(lattice(i), block)));
}

template <class Splat>
void BlurredLattices::splat_and_blur(int block, Team& team, const Splat& splat) {
  const int width = width_of(channels_, block);
  make_filters(block);
  for (std::size_t i = 0; i < sum_.terms.size(); ++i) {
    const LatticeView view = lattice(i).view();
    results_.push_back(filters_[results_.size()]->splat_and_blur(
        [&](float* vertices, std::int64_t begin, std::int64_t end) {
          splat(view, width, vertices, begin, end);
        },
        team));
  }
}

void BlurredLattices::splat_planes(const float* in, Team& team) {
  const std::int64_t n = lattice(0).pixels();
  BufferCache& buffers = lattice(0).topology->pixel_buffers;
  Buffer<float> pixel_rows = buffers.take(n * std::min(kBlock, row_width(channels_)));
  for (int b = 0; b < blocks_of(channels_); ++b) {
    const int width = width_of(channels_, b);
    team.run(n, kGrain, [&](std::int64_t begin, std::int64_t end, int) {
      row_kernels().to_rows(in + b * kBlock * n + begin, n, channels_in(b), width,
                            pixel_rows.data() + begin * width, end - begin);
    });
    splat_and_blur(
        b, team,
        [&](const LatticeView& view, int, float* vertices, std::int64_t begin, std::int64_t end) {
          row_kernels().splat(view, pixel_rows.data(), vertices, width, begin, end);
        });
  }
  buffers.give_back(std::move(pixel_rows));
}

void BlurredLattices::splat_labels(const std::int32_t* channel, Team& team) {
  for (int b = 0; b < blocks_of(channels_); ++b)
    splat_and_blur(b, team,
                   [&](const LatticeView& view, int width, float* vertices, std::int64_t begin,
                       std::int64_t end) {
                     std::fill(vertices, vertices + (end - begin) * width, 0.0f);
                     for (std::int64_t v = begin; v < end; ++v)
                       for_each_run<float>(view, v, channel, [&](int number, float weight) {
                         const int c = number - b * kBlock;
                         if (c >= 0 && c < width) vertices[(v - begin) * width + c] += weight;
                       });
                   });
}

bool BlurredLattices::can_add() const {
  for (const auto& term : sum_.terms)
    if (!term.lattice->same_weights) return false;
  return true;
}

void BlurredLattices::begin_adding() {
  for (int b = 0; filters_.size() < sum_.terms.size() * blocks_of(channels_); ++b) make_filters(b);
  results_.resize(filters_.size());
  added_.clear();
  for (const auto& filter : filters_) added_.push_back(filter->next_rows());
}

void BlurredLattices::add(const float* planes, std::int64_t stride, std::int64_t begin,
                          std::int64_t end) {
  float pixel_rows[kTile * kBlock];
  for (int b = 0; b < blocks_of(channels_); ++b) {
    const int width = width_of(channels_, b);
    row_kernels().to_rows(planes + b * kBlock * stride, stride, channels_in(b), width, pixel_rows,
                          end - begin);
    for (std::size_t i = 0; i < sum_.terms.size(); ++i)
      row_kernels().add(lattice(i).view(), pixel_rows, added_[b * sum_.terms.size() + i], width,
                        begin, end);
  }
}

void BlurredLattices::blur_added(Team& team) {
  for (std::size_t f = 0; f < filters_.size(); ++f) results_[f] = filters_[f]->blur_next(team);
}

void BlurredLattices::slice(std::int64_t begin, std::int64_t end, float* tile) const {
  float pixel_rows[kTile * kBlock];
  for (int b = 0; b < blocks_of(channels_); ++b) {
    const int width = width_of(channels_, b);
    if (sum_.terms.empty()) std::fill_n(pixel_rows, (end - begin) * width, 0.0f);
    for (std::size_t i = 0; i < sum_.terms.size(); ++i)
      row_kernels().slice(lattice(i).view(), result(b, i), factors_[i], i > 0, pixel_rows, width,
                          begin, end);
    row_kernels().to_planes(pixel_rows, channels_in(b), width, 1.0f, false,
                            tile + b * kBlock * kTile, kTile, end - begin);
  }
}

void BlurredLattices::slice_own(const std::int32_t* channel, std::int64_t begin, std::int64_t end,
                                float* out) const {
  std::int32_t column[kTile];
  if (sum_.terms.empty()) std::fill_n(out, end - begin, 0.0f);
  for (std::int64_t first = begin; first < end;) {  // runs of pixels of one block
    const int block = channel[first] / kBlock;
    std::int64_t stop = first;
    for (; stop < end && stop - first < kTile && channel[stop] / kBlock == block; ++stop)
      column[stop - first] = channel[stop] % kBlock;
    for (std::size_t i = 0; i < sum_.terms.size(); ++i)
      row_kernels().slice_one(lattice(i).view(), result(block, i), factors_[i], i > 0, column,
                              out + first - begin, width_of(channels_, block), first, stop);
    first = stop;
  }
}

}  // namespace densecrf
