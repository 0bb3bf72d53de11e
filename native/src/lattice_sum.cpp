#include "densecrf/lattice_sum.hpp"

#include <algorithm>

#include "blurred_lattices.hpp"

namespace densecrf {

namespace {

constexpr int kTile = BlurredLattices::kTile;
constexpr std::int64_t kGrain = 2048;

// The sum is taken pixel by pixel where that needs no more memory than the planes take.
bool at_once(const LatticeSum& sum, Planes planes) {
  return BlurredLattices::fits(sum, planes.labels, planes.labels * planes.n);
}

// Calls use(tile, begin, end, scratch) with the sum at each tile of pixels.
template <class Use>
void for_each_tile(const LatticeSum& sum, Planes planes, const float* in, Team& team,
                   const Use& use) {
  BlurredLattices blurred(sum, planes.labels);
  blurred.splat_planes(in, team);
  team.run(planes.n, kGrain, [&](std::int64_t begin, std::int64_t end, int) {
    const auto size = static_cast<std::size_t>(planes.labels) * kTile;
    std::vector<float> tile(size), scratch(size);
    for (std::int64_t a = begin; a < end; a += kTile) {
      const std::int64_t stop = std::min(end, a + kTile);
      blurred.slice(a, stop, tile.data());
      use(tile.data(), a, stop, scratch.data());
    }
  });
}

}  // namespace

void filter_one_by_one(const LatticeSum& sum, Planes planes, const float* in, float* out,
                       Team& team) {
  for (const auto& term : sum.terms)
    filter_plain(*term.lattice, {in, planes.n, 1}, {out, planes.n, 1}, planes.labels, sum.blur,
                 static_cast<float>(term.weight), &term != sum.terms.data(), team);
}

void filter_sum(const LatticeSum& sum, Planes planes, const float* in, float* out, Team& team) {
  if (!at_once(sum, planes)) {
    filter_one_by_one(sum, planes, in, out, team);
    return;
  }
  for_each_tile(sum, planes, in, team,
                [&](const float* tile, std::int64_t begin, std::int64_t end, float*) {
                  for (int i = 0; i < planes.labels; ++i)
                    std::copy_n(tile + i * kTile, end - begin, out + i * planes.n + begin);
                });
}

void mean_field_step(const LatticeSum& sum, Planes planes, const float* phi, const float* y,
                     const float* own, float* out, Team& team) {
  if (!at_once(sum, planes)) {
    Buffer<float> filtered(planes.labels * planes.n);
    filter_one_by_one(sum, planes, y, filtered.data(), team);
    mean_field_update(planes, phi, filtered.data(), own ? y : nullptr, own, out, team);
    return;
  }
  for_each_tile(sum, planes, y, team,
                [&](const float* tile, std::int64_t begin, std::int64_t end, float* scratch) {
                  const Tile at{planes.n, planes.labels, static_cast<int>(end - begin), scratch};
                  pixel_kernels().mean_field_update(at, phi + begin, tile, kTile,
                                                    own ? y + begin : nullptr,
                                                    own ? own + begin : nullptr, out + begin);
                });
}

}  // namespace densecrf
