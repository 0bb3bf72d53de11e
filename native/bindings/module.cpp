// The module densecrf._native.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "arrays.hpp"
#include "densecrf/memory.hpp"
#include "simd/row_kernels.hpp"

NB_MODULE(_native, m) {
  using namespace nb::literals;
  // A model that lives until the interpreter ends is no leak worth a warning to its user.
  nb::set_leak_warnings(false);
  m.doc() = "Native core of densecrf; not a public interface.";
  densecrf::bind_lattice(m);
  densecrf::bind_baselines(m);
  densecrf::bind_lattice_sum(m);
  densecrf::bind_grid(m);
  densecrf::bind_geodesic(m);
  densecrf::bind_pixelwise(m);
  m.def("set_check",
        [](nb::object function) { densecrf::check_deadline = function.release().ptr(); });
  m.def("available_threads", &densecrf::available_threads);
  m.def("set_default_threads", &densecrf::set_default_threads);
  m.def("threads_for", &densecrf::threads_for, "work"_a, "threads"_a);
  m.def("set_work_per_thread", &densecrf::set_work_per_thread, "work"_a);
  m.def("give_back_free_memory", &densecrf::give_back_free_memory,
        nb::call_guard<densecrf::WithoutGil>());
  m.def("isa", [] { return std::string(densecrf::row_kernels().isa); });
  m.def("select_isa", [](const std::string& isa) { return densecrf::select_isa(isa.c_str()); });
}
