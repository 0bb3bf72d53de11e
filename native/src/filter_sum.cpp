#include "densecrf/filter_sum.hpp"

#include <algorithm>

#include "splat_and_blur.hpp"

namespace densecrf {

namespace {

constexpr int kTile = Spread::kTile;
constexpr std::int64_t kGrain = 2048;

// The sum is taken pixel by pixel where that needs no more memory than the planes take.
bool at_once(const std::vector<Term>& terms, Planes planes, BlurOrder order) {
  return Spread::fits(terms, planes.labels, order, planes.labels * planes.n);
}

// Calls use(tile, begin, end, scratch) with the sum at each tile of pixels.
template <class Use>
void each_tile(const std::vector<Term>& terms, Planes planes, const float* in, BlurOrder order,
               Team& team, const Use& use) {
  Spread spread(terms, planes.labels, order);
  spread.splat_planes(in, team);
  team.run(planes.n, kGrain, [&](std::int64_t begin, std::int64_t end, int) {
    const auto size = static_cast<std::size_t>(planes.labels) * kTile;
    std::vector<float> tile(size), scratch(size);
    for (std::int64_t a = begin; a < end; a += kTile) {
      const std::int64_t stop = std::min(end, a + kTile);
      spread.slice(a, stop, tile.data());
      use(tile.data(), a, stop, scratch.data());
    }
  });
}

}  // namespace

void filter_one_by_one(const std::vector<Term>& terms, Planes planes, const float* in, float* out,
                       BlurOrder order, Team& team) {
  for (const Term& term : terms)
    filter_plain(*term.lattice, {in, planes.n, 1}, {out, planes.n, 1}, planes.labels, order,
                 term.factor, &term != terms.data(), team);
}

void filter_sum(const std::vector<Term>& terms, Planes planes, const float* in, float* out,
                BlurOrder order, Team& team) {
  if (!at_once(terms, planes, order)) {
    filter_one_by_one(terms, planes, in, out, order, team);
    return;
  }
  each_tile(terms, planes, in, order, team,
            [&](const float* tile, std::int64_t begin, std::int64_t end, float*) {
              for (int i = 0; i < planes.labels; ++i)
                std::copy_n(tile + i * kTile, end - begin, out + i * planes.n + begin);
            });
}

void mean_field_step(const std::vector<Term>& terms, Planes planes, const float* phi,
                     const float* y, const float* own, float* out, BlurOrder order, Team& team) {
  if (!at_once(terms, planes, order)) {
    Buffer<float> filtered(planes.labels * planes.n);
    filter_one_by_one(terms, planes, y, filtered.data(), order, team);
    mean_field_response(planes, phi, filtered.data(), own ? y : nullptr, own, out, team);
    return;
  }
  each_tile(terms, planes, y, order, team,
            [&](const float* tile, std::int64_t begin, std::int64_t end, float* scratch) {
              const Tile at{planes.n, planes.labels, static_cast<int>(end - begin), scratch};
              pixels().respond(at, phi + begin, tile, kTile, own ? y + begin : nullptr,
                               own ? own + begin : nullptr, out + begin);
            });
}

}  // namespace densecrf
