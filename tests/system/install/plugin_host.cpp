// SPDX-License-Identifier: Apache-2.0
// A program with Troupe that loads shared objects with Troupe, whose paths are given: all share one library.
#include <dlfcn.h>

#include <cstdio>

#include "troupe/engine.h"

int main(int count, char** paths) {
  const auto engine = troupe::Engine::create({.cpu_threads = {1}});
  if (!engine.ok()) return std::printf("%s\n", engine.error().str().c_str()), 1;
  for (int i = 1; i < count; ++i) {
    void* const plugin = dlopen(paths[i], RTLD_NOW | RTLD_LOCAL);
    if (!plugin) return std::printf("%s\n", dlerror()), 1;
    std::printf("%d\n", reinterpret_cast<int (*)()>(dlsym(plugin, "add_up"))());
  }
  return 0;
}
