// Shared by the bindings, one file per concept: arrays become pointers, the GIL is released, C++
// errors become Python ones. Functions of more than a few arguments take the rest by keyword.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <chrono>
#include <optional>
#include <stdexcept>
#include <thread>

#include "densecrf/filter.hpp"
#include "densecrf/parallel.hpp"
#include "densecrf/pixelwise.hpp"

namespace nb = nanobind;

namespace densecrf {

using namespace nb::literals;

void bind_lattice(nb::module_& m);
void bind_baselines(nb::module_& m);
void bind_lattice_sum(nb::module_& m);
void bind_grid(nb::module_& m);
void bind_geodesic(nb::module_& m);
void bind_pixelwise(nb::module_& m);

template <class T>
using Matrix = nb::ndarray<T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
template <class T>
using Strided = nb::ndarray<T, nb::ndim<2>, nb::device::cpu>;
template <class T>
using Vector = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// Calls f(), which takes the GIL. While Python ends, CPython before 3.14 ends a daemon thread that
// takes the GIL by pthread_exit(), whose unwinding would stop at the next C++ frame and abort the
// process. Such a thread waits here for the end of the process, as it does in CPython 3.14.
template <class F>
auto taking_the_gil(F&& f) noexcept {
  try {
    return f();
  } catch (...) {  // Python's functions throw nothing else
    for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
  }
}

// Releases the GIL for as long as it lives.
class WithoutGil {
 public:
  WithoutGil() : state_(PyEval_SaveThread()) {}
  ~WithoutGil() {
    taking_the_gil([this] { PyEval_RestoreThread(state_); });
  }
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* state_;
};

// A Python function that raises where this thread's deadline has passed; it is never released.
inline PyObject* check_deadline = nullptr;

// Asks Python whether Ctrl-C was pressed or the time is up; its exception then waits in the
// thread's state.
inline bool stop_asked() {
  return taking_the_gil([] {
    const PyGILState_STATE state = PyGILState_Ensure();
    bool stop = PyErr_Occurred() != nullptr ||  // asked before, on the way out
                PyErr_CheckSignals() != 0;
    if (!stop && check_deadline != nullptr) {
      PyObject* answer = PyObject_CallObject(check_deadline, nullptr);
      Py_XDECREF(answer);
      stop = answer == nullptr;
    }
    PyGILState_Release(state);
    return stop;
  });
}

// Numbers that a filter call touches, about, for each number that it is given.
inline constexpr std::size_t kFilterWork = 8;

// Runs body(team) without the GIL, unless the time is up. `work` is how many numbers it touches,
// about: threads are as many as that pays for (parallel.hpp).
template <class F>
auto parallel(int threads, std::size_t work, F&& body) {
  if (stop_asked()) throw nb::python_error();
  try {
    const WithoutGil released;
    Team team(threads_for(static_cast<std::int64_t>(work), threads), stop_asked);
    return body(team);
  } catch (const Interrupted&) {
    throw nb::python_error();
  } catch (const std::out_of_range& error) {
    throw nb::value_error(error.what());
  }
}

inline void require(bool holds, const char* what) {
  if (!holds) throw nb::value_error(what);
}

template <class In, class Out>
void check_same_shape(const In& in, const Out& out) {
  require(in.shape(0) == out.shape(0) && in.shape(1) == out.shape(1),
          "the arrays' shapes are not the same");
  require(in.shape(0) <= INT32_MAX, "too many channels");
}

template <class T>
Planes planes_of(const Matrix<T>& array) {
  return {static_cast<int>(array.shape(0)), static_cast<std::int64_t>(array.shape(1))};
}

template <class T, class... Others>
void check_columns(const Matrix<T>& array, const Others&... vectors) {
  require(((vectors.shape(0) == array.shape(1)) && ...), "a vector is not as long as the planes");
}

inline void check_pixels(const Lattice& lattice, std::size_t count) {
  require(static_cast<std::int64_t>(count) == lattice.pixels(),
          "the array's number of pixels is not the lattice's");
}

inline Blur blur_of(bool symmetric) {
  return symmetric ? Blur::kSymmetric : Blur::kForward;
}

// From densecrf.filters.base.Levels.
template <class Real = float>
LevelsOf<Real> levels_of(nb::handle given) {
  const LevelsOf<Real> levels{nb::cast<int>(given.attr("count")), nb::cast<Real>(given.attr("low")),
                              nb::cast<Real>(given.attr("scale")),
                              nb::cast<bool>(given.attr("hard"))};
  require(levels.count >= 2, "levels: at least 2");
  return levels;
}

// The checked scores of an ordered filter call, whose result has their shape.
inline Scores scores_of(const Matrix<const float>& scores, const Matrix<float>& out,
                        nb::handle levels, const std::optional<Matrix<const float>>& offsets,
                        const Matrix<const float>& extents) {
  check_same_shape(scores, out);
  if (offsets) check_same_shape(scores, *offsets);
  require(extents.shape(0) == scores.shape(0) && extents.shape(1) == 2,
          "extents: not two numbers per channel");
  return {scores.data(), offsets ? offsets->data() : nullptr, extents.data(),
          static_cast<int>(scores.shape(0)), levels_of(levels)};
}

}  // namespace densecrf
