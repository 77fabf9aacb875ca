// SPDX-License-Identifier: Apache-2.0
// A small SavedModel in text: "serving_default" gives y = x * w, its body a function as TensorFlow 2 writes it;
// "vocabulary" gives the text of an asset, which the initialiser reads. Its checkpoint must have w.
#pragma once
#include <string>

namespace troupe::testing {

inline std::string string_constant(const std::string& name, const std::string& value) {
  return "node { name: '" + name +
         "' op: 'Const' attr { key: 'dtype' value { type: DT_STRING } } attr { key: 'value' " +
         "value { tensor { dtype: DT_STRING tensor_shape { dim { size: 1 } } string_val: '" + value + "' } } } }\n";
}

/// The fields of a MetaGraphDef.
inline std::string sample_meta_graph() {
  return R"(
meta_info_def { tags: 'serve' tensorflow_version: '2.21.0' }
graph_def {
  node { name: 'x' op: 'Placeholder' attr { key: 'dtype' value { type: DT_FLOAT } }
         attr { key: 'shape' value { shape { dim { size: -1 } } } } }
  node { name: 'w' op: 'VarHandleOp' attr { key: 'dtype' value { type: DT_FLOAT } }
         attr { key: 'shape' value { shape { } } } attr { key: 'shared_name' value { s: 'w' } } }
  node { name: 'call' op: 'StatefulPartitionedCall' input: 'x' input: 'w'
         attr { key: 'Tin' value { list { type: [ DT_FLOAT, DT_RESOURCE ] } } }
         attr { key: 'Tout' value { list { type: DT_FLOAT } } } attr { key: 'f' value { func { name: 'body' } } } }
  node { name: 'saver_filename' op: 'Placeholder' attr { key: 'dtype' value { type: DT_STRING } }
         attr { key: 'shape' value { shape { } } } }
)" + string_constant("names", "w") +
         string_constant("slices", "") + R"(
  node { name: 'read' op: 'RestoreV2' input: 'saver_filename' input: 'names' input: 'slices'
         attr { key: 'dtypes' value { list { type: DT_FLOAT } } } }
  node { name: 'set' op: 'AssignVariableOp' input: 'w' input: 'read' attr { key: 'dtype' value { type: DT_FLOAT } } }
  node { name: 'restore' op: 'NoOp' input: '^set' }
  node { name: 'path' op: 'Placeholder' attr { key: 'dtype' value { type: DT_STRING } } }
  node { name: 'file' op: 'ReadFile' input: 'path' }
  node { name: 'words' op: 'VarHandleOp' attr { key: 'dtype' value { type: DT_STRING } }
         attr { key: 'shape' value { shape { unknown_rank: true } } } attr { key: 'shared_name' value { s: 'words' } } }
  node { name: 'set_words' op: 'AssignVariableOp' input: 'words' input: 'file'
         attr { key: 'dtype' value { type: DT_STRING } } }
  node { name: 'init' op: 'NoOp' input: '^set_words' }
  node { name: 'text' op: 'ReadVariableOp' input: 'words' attr { key: 'dtype' value { type: DT_STRING } } }
  library { function {
    signature { name: 'body' input_arg { name: 'a' type: DT_FLOAT } input_arg { name: 'b' type: DT_RESOURCE }
                output_arg { name: 'c' type: DT_FLOAT } }
    node_def { name: 'v' op: 'ReadVariableOp' input: 'b' attr { key: 'dtype' value { type: DT_FLOAT } } }
    node_def { name: 'm' op: 'Mul' input: 'a' input: 'v:value:0' attr { key: 'T' value { type: DT_FLOAT } } }
    ret { key: 'c' value: 'm:z:0' } } }
}
saver_def { filename_tensor_name: 'saver_filename:0' restore_op_name: 'restore' version: 2 }
collection_def { key: 'saved_model_main_op' value { node_list { value: 'init' } } }
signature_def { key: 'serving_default' value {
  inputs { key: 'x' value { name: 'x:0' dtype: DT_FLOAT tensor_shape { dim { size: -1 } } } }
  outputs { key: 'y' value { name: 'call:0' dtype: DT_FLOAT tensor_shape { dim { size: -1 } } } }
  method_name: 'tensorflow/serving/predict' } }
signature_def { key: 'vocabulary' value {
  outputs { key: 'text' value { name: 'text:0' dtype: DT_STRING tensor_shape { } } } } }
asset_file_def { tensor_info { name: 'path:0' } filename: 'words.txt' }
)";
}

inline std::string saved_model_text(const std::string& meta_graph) {
  return "saved_model_schema_version: 1 meta_graphs { " + meta_graph + " }";
}

}  // namespace troupe::testing
