// SPDX-License-Identifier: Apache-2.0
// A program that registers tensorflow.GraphDef in a file graph/graph_def/graph.proto of its own, as one that links
// TensorFlow does, and reads with it what Troupe writes.   usage: own_protos VERSION
#include <cstdio>
#include <string>

#include "graph/graph_def/graph.pb.h"
#include "io/event.pb.h"
#include "troupe/engine.h"
#include "troupe/graph_def.h"
#include "troupe/scope.h"
#include "troupe/version.h"

int main(int argc, char** argv) {
  const std::string version = troupe::version();
  if (argc != 2 || version != argv[1] || version != TROUPE_VERSION || version != PACKAGE_VERSION)
    return std::printf("version %s, header %s, package %s\n", troupe::version(), TROUPE_VERSION, PACKAGE_VERSION), 1;
  auto engine = troupe::Engine::create({.cpu_threads = {1}}).value();
  troupe::Graph graph(engine->ops());
  const troupe::Scope scope(graph);
  scope.op("Neg", {scope.constant(2.f)});
  tensorflow::GraphDef own;
  if (!own.ParseFromString(troupe::to_graph_def(graph))) return std::puts("not a GraphDef"), 1;
  tensorflow::Event event;
  event.set_step(own.node_size());
  if (own.node_size() != 2 || own.node(1).op() != "Neg" || event.step() != 2) return std::puts("another graph"), 1;
  const auto* file = google::protobuf::DescriptorPool::generated_pool()->FindFileByName("graph/graph_def/graph.proto");
  if (file == nullptr || file->package() != "tensorflow")
    return std::puts("graph/graph_def/graph.proto is not this program's"), 1;
  return 0;
}
