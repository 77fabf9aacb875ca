// SPDX-License-Identifier: Apache-2.0
// What the inputs of ops must be like, so that random ones fit. A rule is a line
//   Op Op ... : statement ; statement ; ...
// and goes on in lines that begin with a space; an op with several rules takes any of them. A statement is a node: that
// of the op itself, or `name<-Op`, one that the op needs. Nodes run in this order. In a statement there may be
//   n:1..3  n:1|2  n:2*m   a size; without it a name stands for any small number
//   *S:1..2  *S:1..2:2..3  *S:{n,2}   a list of sizes: its rank, the range of each size; or its items
//   x=VALUES               an input, of a list each of its tensors
//   @a=VALUE               an attribute; $T is the type attribute T of the op itself
// VALUES begin with a shape, [n,*S,?,...], where *b(S) is a shape that broadcasts to S, ? any size, ... any two at
// most. Then come: nothing (any values), <n (integers below n), =n, (a..b), {a,b,*S}, 'text' ($D is the folder, ~ a
// space, ^ the end of a line), :kind(arguments). %name:1 is an output of a node. Alternatives stand between |. ~close:
// results may differ by rounding; ~unsteady: they may differ; ~unordered: nodes do not wait for one another; ~fails:
// the op works when it fails.
#include "tests/fuzz/op_rules.h"

#include "io/example.pb.h"

namespace troupe::fuzz {

const std::string_view kOpRules = R"(
# -- control flow, constants, effects
Abort : ~fails @error_msg='stop'
Switch : ~unordered s<- data=[*S] pred=[] ; <-Merge @N=2 @T=$T inputs=%s:0,%s:1
_SwitchN : ~unordered s<- data=[*S] output_index=<2 @num_outs=2 ; <-Merge @N=2 @T=$T inputs=%s:0,%s:1
Merge : ~unsteady inputs=[*S]
_Alive : data=[*S]
Enter Exit NextIteration : data=[*S]
LoopCond : input=[]
Assert : condition==1 data=[*S]
Print : input=[*S] data=[*S] @first_n=0
PrintV2 : input=[] @output_stream='file://$D/print'
CheckNumerics : tensor=[*S](-1.0..1.0) @message='number'
Timestamp NonDeterministicInts Empty : ~unsteady shape={*S}
PlaceholderWithDefault : input=[*S] @shape=[*S]
EnsureShape : input=[*S] @shape=[*S]
Placeholder : @shape=[*S]
_AllReduce _Broadcast : xs=[*S] x=[*S] @N=2 @devices={'/cpu:0','/cpu:0'} @reduction='SUM' @root=(0..1)
_AllGather _ReduceScatter : *S:1..3 xs=[*S] @N=2 @devices={'/cpu:0','/cpu:0'} @reduction='SUM' @sizes={}
  @axis=(0..r(S)-1)
MergeSummary : *S:1..1 s<-ScalarSummary tags=[*S] values=[*S] ; @N=2 inputs=%s,%s

# -- arithmetic
AccumulateNV2 AddN StringJoin : inputs=[*S] @shape=[*S]
All Any Sum Mean Prod Max Min EuclideanNorm ReduceJoin : *S:1..4 input=[*S] inputs=[*S]
  reduction_indices=(-r(S)..r(S)-1)|{}|[r(S)]:permutation
ArgMax ArgMin : *S:1..4:1..3 input=[*S] dimension=(-r(S)..r(S)-1)
Bitcast : input=[*S] @type=$T
Bitcast : input=[*S,2]
Bucketize : input=[*S] @boundaries={-1,0,2}
ClipByValue : t=[*S] clip_value_min==0 clip_value_max==2
ClipByValue : t=[*S] clip_value_min=[*S]=0 clip_value_max=[*S]=2
Cumsum Cumprod CumulativeLogsumexp : *S:1..4 x=[*S] axis=(-r(S)..r(S)-1)
Cross : a=[*A,3] b=[*A,3]
Div FloorDiv TruncateDiv Mod FloorMod TruncateMod RealDiv : x=[*b(S)] y=[*b(S)](1..3)
Pow : x=[*b(S)](0..3) y=[*b(S)](0..3)
Betainc : a=[*S](0.1..3.0) b=[*S](0.1..3.0) x=[*S](0.0..1.0)
Einsum : @N=2 @equation='ij,jk->ik'|'ij,ij->'|'ij,kj->ik'|'...ij,...jk->...ik'|'ij,ij->ij' inputs=[n,n]
Einsum : @N=1 @equation='ij->ji'|'ij->i'|'ii->i'|'ij->' inputs=[n,n]
IsotonicRegression : input=[*S] @T=float32|float64|float16|bfloat16 @output_dtype=$T
IsotonicRegression : input=[*S] @T=int8|uint8|int16|uint16|int32|uint32|int64|uint64 @output_dtype=float32|float64
NearestNeighbors : ~close points=[n,w] centers=[m,w] k=(0..4)
KmeansPlusPlusInitialization : points=[3,w] num_to_sample=(1..3) seed=[] num_retries_per_sample=(-1..2)
KMC2ChainInitialization : n:1..4 distances=[n](0.0..1.0) seed=[]
HistogramFixedWidth : values=[*S] value_range={0,5} nbins=(1..5)
L2Loss : t=[*S]
LinSpace : start=[] stop=[] num=(1..5)
Range : start=(0..3) limit=(4..9) delta=(1..2)
LRN : input=[b,h,w,c] @depth_radius=(0..5)
LRNGrad : input_grads=[b,h,w,c] input_image=[b,h,w,c] output_image=[b,h,w,c] @depth_radius=(0..5)
Softmax LogSoftmax : *A:1..2 logits=[*A,c]
SoftmaxCrossEntropyWithLogits : features=[b,c] labels=[b,c]
SparseSoftmaxCrossEntropyWithLogits : c:1..4 features=[b,c] labels=[b]<c
BiasAdd : *A:1..3 value=[*A,c] bias=[c] @data_format='NHWC'
BiasAdd : *A:1..2 value=[b,c,*A] bias=[c] @data_format='NCHW'
BiasAddGrad : *A:1..3 out_backprop=[*A,c]
InTopK InTopKV2 : c:1..4 predictions=[n,c] targets=[n]<c k=(1..3) @k=(1..3)
NthElement : c:1..5 input=[*A,c] n=<c
TopK TopKV2 : c:1..5 input=[*A,c] k=(0..c) @k=(0..c)
LowerBound UpperBound : sorted_inputs=[b,n]:rows values=[b,m]
Complex : real=[*S] imag=[*S]

# -- moves
BroadcastArgs BroadcastGradientArgs : s0={*b(S)} s1={*b(S)}
BroadcastTo : input=[*b(S)] shape={*S}
Concat ConcatV2 : concat_dim==r(A) axis==r(A)|=-1-r(B) values=[*A,?,*B]
ConcatOffset : concat_dim==r(A) shape={*A,?,*B}
Transpose ConjugateTranspose : x=[*S] perm=[r(S)]:permutation
Diag : *S:1..2 diagonal=[*S]
DiagPart : *S:1..2 input=[*S,*S]
DynamicPartition : p:1..3 data=[*A,*B] partitions=[*A]<p @num_partitions=p
DynamicStitch ParallelDynamicStitch : *A:0..1 indices=[*A]<5 data=[*A,*B]
ExpandDims : input=[*S] dim=(-r(S)-1..r(S))
Fill : dims={*S} value=[]
Fingerprint : *S:1..3 data=[*S] method='farmhash64'
Gather : n:1..4 params=[n,*S] indices=[*I]<n
GatherV2 : n:1..4 *A:0..1 params=[*A,n,*S] indices=[*I]<n axis==r(A) @batch_dims=0
GatherV2 : n:1..4 params=[b,n,*S] indices=[b,?]<n axis==1 @batch_dims=1
GatherNd : *S:1..3:1..3 params=[*S,*R] indices=[*I,r(S)]:indices(S) @bad_indices_policy=''
InvertPermutation : x=[n]:permutation
ListDiff : x=[n] y=[m]
MirrorPad MirrorPadGrad : *S:1..3:3..4 input=[*S] paddings=[r(S),2]<2
OneHot : indices=[*S]<4 depth=(0..5) on_value=[] off_value=[] @axis=-1|(0..r(S))
Pack : values=[*S] @axis=(-r(S)-1..r(S))
Unpack : value=[*A,n,*B] @num=n @axis=r(A)
Pad PadV2 : input=[*S] paddings=[r(S),2]<3 constant_values=[]
ParallelConcat : n:1..3 @N=n values=[1,*S] @shape=[n,*S]
Reshape : tensor=[*S] shape={p(S)}|{*S}|{-1}
Reverse : tensor=[*S] dims=[r(S)]
ReverseV2 : *S:1..4 tensor=[*S] axis={}|{-1}|[r(S)]:permutation
ReverseSequence : input=[n,m,*R] seq_lengths=[n]<m+1 @seq_dim=1 @batch_dim=0
Roll : *S:1..3:1..3 input=[*S] shift=(-3..3) axis=<r(S)
Roll : *S:1..3:1..3 input=[*S] shift=[2] axis=[2]<r(S)
ScatterNd : n:1..4 indices=[k,1]<n updates=[k,*R] shape={n,*R} @bad_indices_policy=''
ScatterNdNonAliasingAdd TensorScatterAdd TensorScatterMax TensorScatterMin TensorScatterSub TensorScatterUpdate :
  n:1..4 input=[n,*R] tensor=[n,*R] indices=[k,1]<n updates=[k,*R] @bad_indices_policy=''
Select : condition=[*S] t=[*S] e=[*S]
Select : condition=[n] t=[n,*S] e=[n,*S]
SelectV2 : condition=[*b(S)] t=[*S] e=[*b(S)]
Slice : input=[*S] begin=[r(S)]=0 size={*S}|[r(S)]=-1
Slice : *S:1..3:2..3 input=[*S] begin=[r(S)]=1 size=[r(S)]=1
Split : n:1..3 split_dim==r(A) value=[*A,n*m,*B] @num_split=n
SplitV : n:1..3 split_dim==r(A) value=[*A,n*m,*B] size_splits=[n]=m @num_split=n
Squeeze : input=[*S] @squeeze_dims={}
Squeeze : input=[*A,1,*B] @squeeze_dims={r(A)}
StridedSlice : input=[*S] begin=[r(S)]=0 end={*S} strides=[r(S)]=1|[r(S)]=2
StridedSlice : *S:1..3:2..3 input=[*S] begin={1} end={-1} strides={-1} @begin_mask=(0..3) @end_mask=(0..3)
  @shrink_axis_mask=(0..1) @new_axis_mask=(0..1) @ellipsis_mask=0
XlaDynamicSlice XlaDynamicUpdateSlice : *S:1..3:1..3 input=[*S] update=[*S] start_indices=[r(S)](-2..2)
  indices=[r(S)](-2..2) size_indices=[r(S)](0..1)
StridedSliceGrad TensorStridedSliceUpdate : shape={*S} input=[*S] dy=[*S] value=[*S] begin=[r(S)]=0 end={*S}
  strides=[r(S)]=1 @shrink_axis_mask=0 @new_axis_mask=0 @ellipsis_mask=0
Tile : input=[*S] multiples=[r(S)]<3
Unique UniqueWithCounts : x=[n]
UniqueV2 UniqueWithCountsV2 : x=[n] axis={}|{0}
UniqueV2 UniqueWithCountsV2 : x=[n,m] axis={0}|{1}
UnravelIndex : *L:1..3:1..3 indices=[n]<p(L) dims={*L}
MatrixBandPart : input=[*A,m,n] num_lower=(-1..m) num_upper=(-1..n)
MatrixDiag MatrixDiagV2 MatrixDiagV3 : *A:0..2 diagonal=[*A,n] k==0 num_rows==-1 num_cols==-1 padding_value=[]
MatrixDiagV2 MatrixDiagV3 : *A:0..2 n:1..3 diagonal=[*A,2,n] k={0,1} num_rows==-1 num_cols==-1 padding_value=[]
MatrixDiagPart MatrixDiagPartV2 MatrixDiagPartV3 : *A:0..2 m:1..3 n:1..3 input=[*A,m,n] k=(1-m..n-1) padding_value=[]
MatrixSetDiag MatrixSetDiagV2 MatrixSetDiagV3 : *A:0..2 m:1..3 n:1..3 input=[*A,m,n] diagonal=[*A,min(m,n)] k==0
BatchToSpace : s:2..3 h:1..3 w:1..3 input=[b*s*s,h,w,c] crops=[2,2]=0 @block_size=s
BatchToSpaceND : s:2..3 h:1..3 w:1..3 input=[b*s*s,h,w,*R] block_shape={s,s} crops=[2,2]<2
SpaceToBatch : s:2..3 input=[b,h*s,w*s,c] paddings=[2,2]=0|[2,2]=s @block_size=s
SpaceToBatchND : s:2..3 input=[b,h*s,w*s,*R] block_shape={s,s} paddings=[2,2]=0
SpaceToDepth : s:2..3 input=[b,h*s,w*s,c] @block_size=s @data_format='NHWC'
SpaceToDepth : s:2..3 input=[b,c,h*s,w*s] @block_size=s @data_format='NCHW'
DepthToSpace : s:2..3 input=[b,h,w,c*s*s] @block_size=s @data_format='NHWC'
DepthToSpace : s:2..3 input=[b,c*s*s,h,w] @block_size=s @data_format='NCHW'

# -- matrices
MatMul SparseMatMul : ~close a=[m,k] b=[k,n] @transpose_a=false @transpose_b=false
MatMul SparseMatMul : ~close a=[k,m] b=[n,k] @transpose_a=true @transpose_b=true
BatchMatMul BatchMatMulV2 : ~close x=[*A,m,k] y=[*A,k,n] @adj_x=false @adj_y=false
BatchMatMulV2 : ~close x=[*b(A),k,m] y=[*b(A),n,k] @adj_x=true @adj_y=true
BatchMatMulV3 : ~close x=[*A,m,k] y=[*A,k,n] @adj_x=false @adj_y=false @Ta=float32|float64|int32|complex64 @Tb=$Ta
  @Tout=$Ta
_FusedMatMul : ~close a=[m,k] b=[k,n] @transpose_a=false @transpose_b=false @num_args=1 args=[n]
  @fused_ops={'BiasAdd'}|{'BiasAdd','Relu'}|{'BiasAdd','Tanh'}|{'BiasAdd','GeluApproximate'}|{'BiasAdd','GeluExact'}|{'BiasAdd','Swish'}
_FusedMatMulReluGrad _FusedMatMulGeluGrad : ~close a=[m,k] b=[k,n] @transpose_a=false @transpose_b=false
  features=[m,n] @num_sums=1
_FusedMatMulBiasAddGrad : ~close a=[k,m] b=[k,n] @transpose_a=true @transpose_b=false @summed='a'|'b'
_FusedLayerNorm : ~close x=[*S,n] @num_args=2 args=[n] @scale=true @center=true
_FusedAttention : ~close queries=[b,h,m,d] keys=[b,h,n,d] values=[b,h,n,w] @layouts='hhhh' @num_added=1 added=[n]
  @num_masks=1 masks=[m,n]
_FusedElementwise : @N=2 args=[*S] @ops={'Add'}|{'Mul'} @operands={0,1}
_FusedElementwise : @N=2 args=[*S] @ops={'Add','Relu'} @operands={0,1,2}
_FusedElementwise : @N=2 args=[*S] @ops={'AddN','Relu'} @operands={0,1,2}
_FusedElementwise : @N=2 args=[*S,n] @ops={'Mean','Sub','Mul'} @operands={0,0,0,2,3,1}
_FusedElementwise : @N=2 args=[*S,n] @ops={'Sum','BroadcastTo','Add'} @operands={0,0,2,1,3,1}
BandedTriangularSolve : ~close n:1..4 k:1..n matrix=[*A,k,n](1.0..2.0) rhs=[*A,n,m]
Cholesky SelfAdjointEigV2 MatrixSquareRoot MatrixLogarithm : input=[*A,n,n]:positive
CholeskyGrad : l=[*A,n,n]:lower grad=[*A,n,n]
Eig LogMatrixDeterminant Lu MatrixDeterminant MatrixInverse Qr Svd : input=[*A,n,n]:regular
Qr Svd : input=[*A,m,n]
MatrixSolve : matrix=[*A,n,n]:regular rhs=[*A,n,m]
MatrixTriangularSolve : matrix=[*A,n,n]:lower rhs=[*A,n,m]
MatrixSolveLs : matrix=[*A,m,n](0.5..2.0) rhs=[*A,m,k] l2_regularizer==1
TridiagonalMatMul : superdiag=[*A,1,m] maindiag=[*A,1,m] subdiag=[*A,1,m] rhs=[*A,m,n]
TridiagonalSolve : diagonals=[*A,3,m](1.0..2.0) rhs=[*A,m,n]
FFT IFFT : n:1..6 input=[*A,n]
FFT2D IFFT2D : n:1..4 m:1..4 *A:0..2 input=[*A,m,n]
FFT3D IFFT3D : n:1..4 m:1..3 l:1..3 *A:0..1 input=[*A,l,m,n]
RFFT IRFFT : n:1..6 m:1..6 input=[*A,m] fft_length={n}
RFFT2D IRFFT2D : n:1..6 m:1..4 *A:0..2 input=[*A,n,m] fft_length={m,n}
RFFT3D IRFFT3D : n:1..6 m:1..4 *A:0..1 input=[*A,n,m,m] fft_length={m,n,m}
AudioSpectrogram : input=[n,c] @window_size=(2..9) @stride=(1..4)
Mfcc : spectrogram=[c,n,17](0.0..1.0) sample_rate==8000 @upper_frequency_limit=4000 @lower_frequency_limit=20
  @filterbank_channel_count=(5..8) @dct_coefficient_count=(1..5)

# -- windows over images
AvgPool MaxPool MaxPoolWithArgmax MaxPoolV2 : h:1..6 w:1..6 kh:1..h kw:1..w s:1..3 value=[b,h,w,c] input=[b,h,w,c]
  ksize={1,kh,kw,1} strides={1,s,s,1} @ksize={1,kh,kw,1} @strides={1,s,s,1} @padding='SAME'|'VALID'
  @data_format='NHWC' @explicit_paddings={}
AvgPool MaxPool : h:1..6 w:1..6 kh:1..h kw:1..w s:1..3 value=[b,c,h,w] input=[b,c,h,w] @ksize={1,1,kh,kw}
  @strides={1,1,s,s} @padding='SAME'|'VALID' @data_format='NCHW' @explicit_paddings={}
MaxPool : h:2..6 w:2..6 input=[b,h,w,c] @ksize={1,2,2,1} @strides={1,s,s,1} s:1..2 @padding='EXPLICIT'
  @data_format='NHWC' @explicit_paddings={0,0,1,0,0,1,0,0}
AvgPoolGrad MaxPoolGrad MaxPoolGradV2 MaxPoolGradWithArgmax : h:1..6 w:1..6 kh:1..h kw:1..w s:1..3 p:(h-kh)/s+1
  q:(w-kw)/s+1 orig_input_shape={b,h,w,c} grad=[b,p,q,c] orig_input=[b,h,w,c] input=[b,h,w,c] orig_output=[b,p,q,c]
  argmax=[b,p,q,c]<h*w*c ksize={1,kh,kw,1} strides={1,s,s,1} @ksize={1,kh,kw,1} @strides={1,s,s,1} @padding='VALID'
  @data_format='NHWC' @explicit_paddings={} @include_batch_in_index=false c:1..3
AvgPoolGrad MaxPoolGrad MaxPoolGradV2 : h:1..6 w:1..6 kh:1..h kw:1..w s:1..3 p:c(h,s) q:c(w,s)
  orig_input_shape={b,h,w,c} grad=[b,p,q,c] orig_input=[b,h,w,c] orig_output=[b,p,q,c]
  ksize={1,kh,kw,1} strides={1,s,s,1} @ksize={1,kh,kw,1} @strides={1,s,s,1} @padding='SAME'
  @data_format='NHWC' @explicit_paddings={}
MaxPoolGradGrad MaxPoolGradGradV2 : h:1..6 w:1..6 kh:1..h kw:1..w s:1..3 p:(h-kh)/s+1
  q:(w-kw)/s+1 grad=[b,h,w,c] orig_input=[b,h,w,c] orig_output=[b,p,q,c]
  ksize={1,kh,kw,1} strides={1,s,s,1} @ksize={1,kh,kw,1} @strides={1,s,s,1} @padding='VALID' @data_format='NHWC'
AvgPool3D MaxPool3D : d:1..3 h:1..4 w:1..4 kd:1..d kh:1..h kw:1..w s:1..2 input=[b,d,h,w,c] @ksize={1,kd,kh,kw,1}
  @strides={1,s,s,s,1} @padding='SAME'|'VALID' @data_format='NDHWC'
AvgPool3DGrad MaxPool3DGrad : d:1..3 h:1..4 w:1..4 kd:1..d kh:1..h kw:1..w s:1..2 o:(d-kd)/s+1 p:(h-kh)/s+1
  q:(w-kw)/s+1 orig_input_shape={b,d,h,w,c} grad=[b,o,p,q,c] orig_input=[b,d,h,w,c] orig_output=[b,o,p,q,c]
  @ksize={1,kd,kh,kw,1} @strides={1,s,s,s,1} @padding='VALID' @data_format='NDHWC' @TInput=$T
MaxPool3DGradGrad : d:1..3 h:1..4 w:1..4 kd:1..d kh:1..h kw:1..w s:1..2 o:(d-kd)/s+1 p:(h-kh)/s+1
  q:(w-kw)/s+1 grad=[b,d,h,w,c] orig_input=[b,d,h,w,c] orig_output=[b,o,p,q,c]
  @ksize={1,kd,kh,kw,1} @strides={1,s,s,s,1} @padding='VALID' @data_format='NDHWC'
Conv2D _FusedConv2D : ~close h:1..6 w:1..6 kh:1..h kw:1..w s:1..3 c:1..3 o:1..3 input=[b,h,w,c] filter=[kh,kw,c,o]
  @strides={1,s,s,1} @padding='SAME'|'VALID' @data_format='NHWC' @dilations={1,1,1,1} @explicit_paddings={}
  @num_args=1 args=[o] @fused_ops={'BiasAdd'}|{'BiasAdd','Relu'}
_BlockedConv2D : ~close input=[b,1,4,4,16] filter=[3,3,16,5] @depthwise=false @blocked=true @channels=16
  @strides={1,1,1,1} @padding='SAME' @dilations={1,1,1,1} @explicit_paddings={} @num_args=1 args=[5] @fused_ops={'BiasAdd'}
_PointwiseDepthwise : ~close h:3..6 s:1..2 input=[b,2,h,h,16] pointwise_filter=[1,1,20,5] depthwise_filter=[3,3,5,1]
  @blocked=true @channels=20 @middle=5 @strides={1,s,s,1} @padding='SAME'|'VALID' @explicit_paddings={} @num_args=1
  args=[5] @pointwise_ops={'Relu6'} @depthwise_ops={'BiasAdd','Swish'}
_PointwiseDepthwise : ~close h:3..6 s:1..2 input=[b,h,h,20] pointwise_filter=[1,1,20,16] depthwise_filter=[3,3,16,1]
  @blocked=false @channels=20 @middle=16 @strides={1,s,s,1} @padding='SAME'|'VALID' @explicit_paddings={} @num_args=1
  args=[16] @pointwise_ops={'Relu6'} @depthwise_ops={'BiasAdd','Swish'}
_BlockImages : h:1..3 w:1..3 images=[b,h,w,20]
_UnblockImages _MeanOfBlockedImages : ~close h:1..3 w:1..3 blocked=[b,2,h,w,16] @channels=20
_ScaleBlockedImages : h:1..3 w:1..3 blocked=[b,2,h,w,16] scales=[b,1,1,20]
Conv2D : ~close h:1..6 w:1..6 kh:1..h kw:1..w s:1..3 c:1..3 o:1..3 input=[b,c,h,w] filter=[kh,kw,c,o]
  @strides={1,1,s,s} @padding='SAME'|'VALID' @data_format='NCHW' @dilations={1,1,1,1} @explicit_paddings={}
Conv2D : ~close h:3..6 w:3..6 c:1..3 o:1..3 s:1..2 input=[b,h,w,c] filter=[2,2,c,o] @strides={1,s,s,1}
  @padding='EXPLICIT' @data_format='NHWC' @dilations={1,2,2,1} @explicit_paddings={0,0,1,0,0,1,0,0}
Conv2DBackpropFilter Conv2DBackpropInput : ~close h:1..6 w:1..6 kh:1..h kw:1..w s:1..3 c:1..3 o:1..3 p:(h-kh)/s+1
  q:(w-kw)/s+1 input=[b,h,w,c] filter_sizes={kh,kw,c,o} input_sizes={b,h,w,c} filter=[kh,kw,c,o]
  out_backprop=[b,p,q,o] @strides={1,s,s,1} @padding='VALID' @data_format='NHWC' @dilations={1,1,1,1}
  @explicit_paddings={}
Conv2DBackpropFilter Conv2DBackpropInput : ~close h:1..6 w:1..6 kh:1..h kw:1..w s:1..3 c:1..3 o:1..3 p:c(h,s)
  q:c(w,s) input=[b,h,w,c] filter_sizes={kh,kw,c,o} input_sizes={b,h,w,c} filter=[kh,kw,c,o]
  out_backprop=[b,p,q,o] @strides={1,s,s,1} @padding='SAME' @data_format='NHWC' @dilations={1,1,1,1}
  @explicit_paddings={}
DepthwiseConv2dNative _FusedDepthwiseConv2dNative : ~close h:1..6 w:1..6 kh:1..h kw:1..w s:1..3 c:1..3 m:1..2
  input=[b,h,w,c] filter=[kh,kw,c,m] @strides={1,s,s,1} @padding='SAME'|'VALID' @data_format='NHWC'
  @dilations={1,1,1,1} @explicit_paddings={} @num_args=1 args=[c*m] @fused_ops={'BiasAdd'}|{'BiasAdd','Relu6'}
DepthwiseConv2dNativeBackpropFilter DepthwiseConv2dNativeBackpropInput : ~close h:1..6 w:1..6 kh:1..h kw:1..w s:1..3
  c:1..3 m:1..2 p:(h-kh)/s+1 q:(w-kw)/s+1 input=[b,h,w,c] filter_sizes={kh,kw,c,m} input_sizes={b,h,w,c}
  filter=[kh,kw,c,m] out_backprop=[b,p,q,c*m] @strides={1,s,s,1} @padding='VALID' @data_format='NHWC'
  @dilations={1,1,1,1} @explicit_paddings={}
Conv3D : ~close d:1..3 h:1..4 w:1..4 kd:1..d kh:1..h kw:1..w s:1..2 c:1..3 o:1..3 input=[b,d,h,w,c]
  filter=[kd,kh,kw,c,o] @strides={1,s,s,s,1} @padding='SAME'|'VALID' @data_format='NDHWC' @dilations={1,1,1,1,1}
Conv3DBackpropFilterV2 Conv3DBackpropInputV2 : ~close d:1..3 h:1..4 w:1..4 kd:1..d kh:1..h kw:1..w s:1..2 c:1..3
  o:1..3 t:(d-kd)/s+1 p:(h-kh)/s+1 q:(w-kw)/s+1 input=[b,d,h,w,c] filter_sizes={kd,kh,kw,c,o} input_sizes={b,d,h,w,c}
  filter=[kd,kh,kw,c,o] out_backprop=[b,t,p,q,o] @strides={1,s,s,s,1} @padding='VALID' @data_format='NDHWC'
  @dilations={1,1,1,1,1}
Dilation2D : h:1..6 w:1..6 kh:1..h kw:1..w s:1..3 input=[b,h,w,c] filter=[kh,kw,c] @strides={1,s,s,1}
  @rates={1,1,1,1} @padding='SAME'|'VALID'
Dilation2DBackpropFilter Dilation2DBackpropInput : h:1..6 w:1..6 kh:1..h kw:1..w s:1..3 p:(h-kh)/s+1
  q:(w-kw)/s+1 input=[b,h,w,c] filter=[kh,kw,c] out_backprop=[b,p,q,c] @strides={1,s,s,1} @rates={1,1,1,1}
  @padding='VALID'
ExtractImagePatches : h:1..6 w:1..6 kh:1..h kw:1..w s:1..3 images=[b,h,w,c] @ksizes={1,kh,kw,1} @strides={1,s,s,1}
  @rates={1,1,1,1}
ExtractVolumePatches : d:1..3 h:1..4 w:1..4 kd:1..d kh:1..h kw:1..w s:1..2 input=[b,d,h,w,c] @ksizes={1,kd,kh,kw,1}
  @strides={1,s,s,s,1}
FractionalAvgPool FractionalMaxPool : h:3..8 w:3..8 value=[b,h,w,c] @pooling_ratio={1,1.5,1.4,1}
FractionalAvgPoolGrad FractionalMaxPoolGrad : orig_input_tensor_shape={b,4,4,c} orig_input=[b,4,4,c]
  orig_output=[b,2,2,c] out_backprop=[b,2,2,c] row_pooling_sequence={0,2,4} col_pooling_sequence={0,1,4}
FusedBatchNormV3 : ~close b:1..2 h:1..3 w:1..3 x=[b,h,w,c] scale=[c] offset=[c] mean=[0] variance=[0] @is_training=true
  @data_format='NHWC' @exponential_avg_factor=1
FusedBatchNormV3 : ~close x=[b,h,w,c] scale=[c] offset=[c] mean=[c] variance=[c](0.1..2.0) @is_training=false
  @data_format='NHWC' @exponential_avg_factor=1
FusedBatchNormV3 : ~close x=[b,c,h,w] scale=[c] offset=[c] mean=[c] variance=[c](0.1..2.0) @is_training=false
  @data_format='NCHW' @exponential_avg_factor=1
FusedBatchNormGradV3 : ~close b:1..2 h:1..3 w:1..3 y_backprop=[b,h,w,c] x=[b,h,w,c] scale=[c] reserve_space_1=[c]
  reserve_space_2=[c](0.1..2.0) reserve_space_3=[0] @data_format='NHWC'
_BatchNormStatistics : ~close b:1..2 h:1..3 w:1..3 x=[b,h,w,c] scale=[c] offset=[c] mean=[0] variance=[0] @is_training=true
  @data_format='NHWC' @exponential_avg_factor=1
_FusedBatchNormRelu : ~close x=[b,h,w,c] scale=[c] offset=[c] mean=[c] variance=[c](0.1..2.0) @is_training=false
  @num_side_inputs=1 side_input=[b,h,w,c] @data_format='NHWC' @exponential_avg_factor=1
_FusedBatchNormReluGrad : ~close y_backprop=[1,2,2,4] x=[1,2,2,4] scale=[4] reserve_space_1=[4]
  reserve_space_2=[4](0.1..2.0) reserve_space_3=[1] @data_format='NHWC' @num_side_inputs=1

# -- recurrent cells
BlockLSTM BlockLSTMV2 BlockLSTMGrad BlockLSTMGradV2 : ~close t:1..3 h:1..3 n:1..2 q:1..3 seq_len_max=(0..t) x=[t,n,q]
  cs_prev=[n,h] h_prev=[n,h] w=[q+h,4*h] wci=[h] wcf=[h] wco=[h] b=[4*h] i=[t,n,h] cs=[t,n,h] f=[t,n,h] o=[t,n,h]
  ci=[t,n,h] co=[t,n,h] h=[t,n,h] cs_grad=[t,n,h] h_grad=[t,n,h]
_BlockLSTMStates : ~close t:1..3 h:1..3 n:1..9 q:1..3 seq_len_max=(0..t) x=[t,n,q] cs_prev=[n,h] h_prev=[n,h]
  w=[q+h,4*h] wci=[h] wcf=[h] wco=[h] b=[4*h] @op='BlockLSTM'|'BlockLSTMV2'
LSTMBlockCell LSTMBlockCellGrad : ~close h:1..3 n:1..2 q:1..3 x=[n,q] cs_prev=[n,h] h_prev=[n,h] w=[q+h,4*h] wci=[h]
  wcf=[h] wco=[h] b=[4*h] i=[n,h] cs=[n,h] f=[n,h] o=[n,h] ci=[n,h] co=[n,h] cs_grad=[n,h] h_grad=[n,h]
GRUBlockCell GRUBlockCellGrad : ~close h:1..3 n:1..2 q:1..3 x=[n,q] h_prev=[n,h] w_ru=[q+h,2*h] w_c=[q+h,h]
  b_ru=[2*h] b_c=[h] r=[n,h] u=[n,h] c=[n,h] d_h=[n,h]
CTCLoss CTCLossV2 : t:2..4 n:1..3 c:3..4 inputs=[t,n,c](-1.0..1.0) *L:{n,2} k:0..p(L) labels_indices=[k,2]:places(L)
  labels_values=[k]<c-1 sequence_length=[n]=t @ignore_longer_outputs_than_inputs=true
CTCGreedyDecoder CTCBeamSearchDecoder : t:1..4 n:1..3 c:2..4 inputs=[t,n,c](-1.0..1.0) sequence_length=[n](0..t)
  @beam_width=(2..4) @top_paths=(1..2) @blank_index=-1

# -- pictures and sounds
AdjustContrastv2 AdjustHue AdjustSaturation : *A:0..2 h:1..3 w:1..3 images=[*A,h,w,3](0.0..1.0)
  contrast_factor=(0.0..2.0) delta=(-1.0..1.0) scale=(0.0..2.0)
HSVToRGB RGBToHSV : images=[*A,3](0.0..1.0)
AudioSummary AudioSummaryV2 : tag=[] tensor=[b,f]|[b,f,1]|[b,f,2] sample_rate==8000 @sample_rate=8000
ImageSummary : tag=[] c:1|3|4 h:1..3 w:1..3 tensor=[b,h,w,c] @max_images=(1..3)
CombinedNonMaxSuppression : boxes=[b,n,1,4] scores=[b,n,c] max_output_size_per_class=(0..3) max_total_size=(1..5)
  iou_threshold=(0.0..1.0) score_threshold=(0.0..1.0)
NonMaxSuppression NonMaxSuppressionV2 NonMaxSuppressionV3 NonMaxSuppressionV4 NonMaxSuppressionV5
  NonMaxSuppressionWithOverlaps : boxes=[n,4] overlaps=[n,n] scores=[n] max_output_size=(0..4)
  iou_threshold=(0.0..1.0) overlap_threshold=(0.0..1.0) score_threshold=(0.0..1.0) soft_nms_sigma=(0.0..1.0)
  @iou_threshold=(0.0..1.0)
CropAndResize CropAndResizeGradBoxes CropAndResizeGradImage : b:1..2 h:1..3 w:1..3 p:1..3 q:1..3 image=[b,h,w,c]
  boxes=[n,4] box_ind=[n]<b crop_size={p,q} grads=[n,p,q,c] image_size={b,h,w,c}
DrawBoundingBoxes DrawBoundingBoxesV2 : c:1|3|4 h:1..4 w:1..4 images=[b,h,w,c] boxes=[b,?,4](0.0..1.0) colors=[?,4]
ExtractGlimpse ExtractGlimpseV2 : ~unsteady h:1..4 w:1..4 input=[b,h,w,c] size={(1..4),(1..4)} offsets=[b,2]
  @noise='uniform'|'gaussian'|'zero'
ResizeArea ResizeBicubic ResizeBilinear ResizeNearestNeighbor ScaleAndTranslate : b:0..2 h:1..4 w:1..4 images=[b,h,w,c]
  size={(1..5),(1..5)} scale=[2](0.5..2.0) translation=[2](-1.0..1.0) @kernel_type='lanczos3'|'box'|'triangle'
  @align_corners=false
ResizeBicubic ResizeBilinear ResizeNearestNeighbor : h:1..4 w:1..4 images=[b,h,w,c] size={(1..5),(1..5)}
  @align_corners=true @half_pixel_centers=false
ImageProjectiveTransformV2 ImageProjectiveTransformV3 : h:1..4 w:1..4 images=[b,h,w,c] transforms=[1,8](-0.9..0.9)|[b,8](-0.1..0.9)
  output_shape={(1..5),(1..5)} fill_value=[] @interpolation='NEAREST'|'BILINEAR'
  @fill_mode='CONSTANT'|'REFLECT'|'WRAP'|'NEAREST'
ResizeBicubicGrad ResizeBilinearGrad ResizeNearestNeighborGrad ScaleAndTranslateGrad : h:1..4 w:1..4 p:1..4 q:1..4
  grads=[b,p,q,c] original_image=[b,h,w,c] size={h,w} scale=[2](0.5..2.0) translation=[2](-1.0..1.0)
  @kernel_type='lanczos3'|'box' @align_corners=false
SampleDistortedBoundingBox SampleDistortedBoundingBoxV2 StatelessSampleDistortedBoundingBox : image_size={20,30,3}
  bounding_boxes=[1,n,4]{0,0,0.9,0.8} min_object_covered=(0.0..0.5) seed=[2]
  @use_image_if_no_bounding_boxes=true @max_attempts=100
DecodeAndCropJpeg : h:1..9 w:1..9 j<-EncodeJpeg image=[h,w,3] ; contents=%j crop_window={0,0,h,w} @channels=0|1|3
  @ratio=1 @dct_method='' @acceptable_fraction=1
DecodeJpeg DecodeImage DecodePng DecodeGif : h:1..9 w:1..9 j<-EncodeJpeg image=[h,w,3] ; contents=%j @channels=0|1|3
  @ratio=1|2 @dct_method='' @acceptable_fraction=1 @dtype=uint8
DecodePng DecodeImage DecodeGif DecodeJpeg : h:1..9 w:1..9 c:1..4 j<-EncodePng image=[h,w,c] @T=uint8 ; contents=%j
  @channels=0|1|3 @ratio=1 @dct_method=''
ExtractJpegShape : h:1..9 w:1..9 j<-EncodeJpeg image=[h,w,1]|[h,w,3] ; contents=%j
DecodeBmp : contents=:bmp @channels=0|3
DecodeWav : w<-EncodeWav audio=[n,c] c:1..2 sample_rate==8000 ; contents=%w @desired_channels=-1|1 @desired_samples=-1|4
EncodeWav : audio=[n,c] c:1..2 sample_rate==8000
EncodeJpeg : h:1..9 w:1..9 image=[h,w,3]|[h,w,1] @format='' @quality=(1..100) @density_unit='in'|'cm' @xmp_metadata=''
EncodeJpegVariableQuality : h:1..9 w:1..9 images=[h,w,3] quality=(1..100)
EncodePng : h:1..9 w:1..9 c:1..4 image=[h,w,c] @compression=(-1..9)

# -- quantized
FakeQuantWithMinMaxArgs FakeQuantWithMinMaxArgsGradient FakeQuantWithMinMaxVars FakeQuantWithMinMaxVarsGradient :
  inputs=[*S] gradients=[*S] min==-1 max==1 @min=-6 @max=6 @num_bits=(2..16)
FakeQuantWithMinMaxVarsPerChannel FakeQuantWithMinMaxVarsPerChannelGradient : *A:0..1 inputs=[*A,c] gradients=[*A,c]
  min=[c]=-1 max=[c]=1 @num_bits=(2..16)
UniformQuantize UniformDequantize : input=[*S] scales==1 zero_points==3 @quantization_axis=-1 @quantization_min_val=(0..3)
  @quantization_max_val=(4..127)
UniformQuantize UniformDequantize : input=[2,n,3] scales=[n](0.5..2.0) zero_points=[n] @quantization_axis=1
  @quantization_min_val=0 @quantization_max_val=127
Dequantize QuantizeV2 : input=[*S] min_range==-1 max_range==1 @axis=-1
QuantizeAndDequantize QuantizeAndDequantizeV2 QuantizeAndDequantizeV3 QuantizeAndDequantizeV4
  QuantizeAndDequantizeV4Grad : input=[*S] gradients=[*S] input_min==-1 input_max==1 num_bits==8 @axis=-1
  @num_bits=(2..8) @input_min=-1 @input_max=1
QuantizeDownAndShrinkRange Requantize RequantizationRange : input=[*S] input_min==-1 input_max==1
  requested_output_min==-1 requested_output_max==1
RequantizePerChannel RequantizationRangePerChannel : b:1..2 h:1..2 w:1..2 c:1..3 input=[b,h,w,c] input_min=[c]=-1
  input_max=[c]=1 requested_output_min==-1 requested_output_max==1 @clip_value_max=(1.0..3.0)
QuantizedAdd QuantizedMul : x=[*S] y=[*S]|[] min_x==-1 max_x==1 min_y==-1 max_y==1
QuantizedAvgPool QuantizedMaxPool : h:1..6 w:1..6 kh:1..h kw:1..w s:1..3 input=[b,h,w,c] min_input==-1 max_input==1
  @ksize={1,kh,kw,1} @strides={1,s,s,1}
QuantizedBatchNormWithGlobalNormalization : h:1..2 w:1..2 t=[b,h,w,c] m=[c] v=[c] beta=[c] gamma=[c] t_min==-1 t_max==1
  m_min==-1 m_max==1 v_min==-1 v_max==1 beta_min==-1 beta_max==1 gamma_min==-1 gamma_max==1 @variance_epsilon=0.01
QuantizedBiasAdd : *A:1..3 input=[*A,c] bias=[c] min_input==-1 max_input==1 min_bias==-1 max_bias==1
QuantizedConcat : concat_dim==r(A) values=[*A,?,*B] input_mins==-1 input_maxes==1
QuantizedConv2D : h:1..6 w:1..6 kh:1..h kw:1..w s:1..3 c:1..3 o:1..3 input=[b,h,w,c] filter=[kh,kw,c,o] min_input==-1
  max_input==1 min_filter==-1 max_filter==1 @strides={1,s,s,1} @dilations={1,1,1,1}
QuantizedInstanceNorm : b:1..2 h:1..3 w:1..3 x=[b,h,w,c] x_min==-1 x_max==1 @given_y_min=-1 @given_y_max=1
QuantizedMatMul : k:1..3 a=[m,k] b=[k,n] min_a==-1 max_a==1 min_b==-1 max_b==1 @transpose_a=false @transpose_b=false
QuantizedRelu QuantizedRelu6 : features=[*S] min_features==-1 max_features==1 @out_type=uint8
QuantizedReshape : tensor=[*S] shape={p(S)} input_min==-1 input_max==1
QuantizedResizeBilinear : h:1..3 w:1..3 images=[b,h,w,c] size={(1..4),(1..4)} min==-1 max==1 @align_corners=false

# -- random numbers
AllCandidateSampler : n:2..6 t:1..2 true_classes=[b,t]<n @num_true=t @num_sampled=n
UniformCandidateSampler LogUniformCandidateSampler LearnedUnigramCandidateSampler ThreadUnsafeUnigramCandidateSampler
  FixedUnigramCandidateSampler : m:3..8 n:1..m t:1..2 true_classes=[b,t]<m *U:m:1..5 @num_true=t @num_sampled=n
  @range_max=m @unigrams={*U} @vocab_file='' @num_reserved_ids=0 @num_shards=1 @shard=0 @distortion=1
ComputeAccidentalHits : t:1..3 true_classes=[b,t]<5 sampled_candidates=[n]<5 @num_true=t
Multinomial StatelessMultinomial : c:1..4 logits=[b,c](-1.0..1.0) num_samples=(0..4) seed=[2]
ParameterizedTruncatedNormal StatelessParameterizedTruncatedNormal : shape={b,n} seed=[2] means==0 stdevs==1 stddevs==1
  minvals==-2 maxvals==2
RandomGamma StatelessRandomGammaV2 StatelessRandomGammaV3 : shape={b,*A} alpha=[*A](0.1..2.0) seed=[2] key=[1] counter=[2]
  alg==1
RandomGammaGrad : alpha=[*b(S)](0.1..2.0) sample=[*b(S)](0.1..2.0)
RandomPoisson RandomPoissonV2 StatelessRandomPoisson : shape={b,n} rate=[](0..3) lam=[](0..3) seed=[2]
RandomShuffle StatelessShuffle : value=[*S] key=[1] counter=[2] alg==1
RandomUniformInt StatelessRandomUniformInt StatelessRandomUniformIntV2 : shape={*S} minval=(0..3) maxval=(4..9) seed=[2]
  key=[1] counter=[2] alg==1
RandomStandardNormal RandomUniform TruncatedNormal StatelessRandomNormal StatelessRandomNormalV2 StatelessRandomUniform
  StatelessRandomUniformFullInt StatelessRandomUniformFullIntV2 StatelessRandomUniformV2 StatelessTruncatedNormal
  StatelessTruncatedNormalV2 : shape={*S} seed=[2] key=[1] counter=[2] alg==1
StatelessRandomBinomial : shape={*S} seed=[2] counts==5 probs==0
StatelessRandomBinomial : @T=float32|float64 shape={*S} seed=[2] counts==5 probs==0.5
StatelessRandomGetKeyCounter StatelessRandomGetKeyCounterAlg : seed=[2]
StatefulStandardNormalV2 StatefulTruncatedNormal StatefulUniform StatefulUniformFullInt StatefulUniformInt
  StatefulRandomBinomial RngSkip RngReadAndSkip : v<-VarHandleOp @dtype=int64 @shape=[3] ;
  <-AssignVariableOp @dtype=int64 resource=%v value={5,7,9} ; resource=%v algorithm==1 alg==1 shape={*S} delta=(0..9)
  minval=(0..3) maxval=(4..9) counts==5 probs==1 ; <-ReadVariableOp @dtype=int64 resource=%v

# -- strings
AsString : input=[*S] @fill=''|'0' @precision=-1|2 @width=-1|5 @scientific=false
DecodeBase64 : e<-EncodeBase64 input=[*S] ; input=%e
DecodeCSV : records={'1,2','3,4'}|[0] record_defaults=[0]|[1]=1 @OUT_TYPE={int32,float32}|{int64,string} @field_delim=','
  @na_value='' @select_cols={}
DecodeCompressed : bytes=[*S] @compression_type=''
DecodePaddedRaw : input_bytes=[*S]'abcdefgh' fixed_length==16
DecodeRaw : bytes=[*S]'abcdefgh'
RegexFullMatch RegexReplace StaticRegexFullMatch StaticRegexReplace : input=[*S] pattern='a.*' rewrite='x\0'
  @pattern='[a-z]+' @rewrite='y'
ShardedFilename ShardedFilespec : basename=[] shard==1 num_shards==3
StringFormat : @T={float32} inputs=[*S] @template='a~%s' @placeholder='%s'
StringNGrams : k:1..3 data=[n] data_splits={0,n} @ngram_widths={1,2}|{} @pad_width=(0..2)
UnicodeDecode UnicodeDecodeWithOffsets UnicodeTranscode : input=[*S] @input_encoding='UTF-8'|'UTF-16-BE'|'UTF-32-BE'
  @output_encoding='UTF-8'|'UTF-16-BE' @errors='replace'|'ignore' @replacement_char=(32..99)
UnicodeEncode : input_values=[n](-5..999) input_splits={0,n} @errors='replace'|'ignore' @replacement_char=(32..99)
SobolSample : dim=(1..9) num_results=(1..9) skip=(0..9)
RandomIndexShuffle : index=<5 seed=[3] max_index=(4..9) @rounds=4|6
StringSplit : input=[n] delimiter=''|'~'|','
StringSplitV2 : input=[n] sep=''|','
StringToHashBucketStrong : @key={1,2}
StringToNumber : string_tensor=[*S]'12'|[*S]'3'
Substr : input=[*S]'abcdef' pos==1 len==2
Substr : input=[*S]'abcdef' pos=[*S]<6 len=[*S]<9
UnsortedSegmentJoin : m:1..4 inputs=[*A,*R] segment_ids=[*A]<m num_segments==m
ParseTensor : s<-SerializeTensor @T=$out_type tensor=[*S] ; serialized=%s
ScalarSummary : tags=[*S] values=[*S]
HistogramSummary : tag=[] values=[*S](0..9)
TensorSummary : ~unsteady tensor=[*S]
TensorSummaryV2 : tag=[] tensor=[*S] serialized_summary_metadata=''
ParseExample : serialized=[b]:example names=[0] @Nsparse=1 @Ndense=1 sparse_keys='n' dense_keys='f' @Tdense={float32}
  @sparse_types={int64} dense_defaults==1 @dense_shapes={[]}
ParseExampleV2 : serialized=[b]:example names=[0] sparse_keys={'s'} dense_keys={'f'} ragged_keys={'n'} @num_sparse=1
  @Tdense={float32} @sparse_types={string} dense_defaults==1 @dense_shapes={[]} @ragged_value_types={int64}
  @ragged_split_types={int32}|{int64}
ParseSingleExample : serialized=:example @num_sparse=1 @sparse_keys={'n'} @dense_keys={'f'} @sparse_types={int64}
  @Tdense={float32} dense_defaults==1 @dense_shapes={[]}
ParseSequenceExampleV2 : serialized=[b]:sequence debug_name=[0] context_sparse_keys={'n'} context_dense_keys={'f'}
  context_ragged_keys={} feature_list_sparse_keys={'n'} feature_list_dense_keys={'f'} feature_list_ragged_keys={}
  feature_list_dense_missing_assumed_empty={0} context_dense_defaults==1 @Ncontext_sparse=1
  @context_sparse_types={int64} @Tcontext_dense={float32} @context_dense_shapes={[]} @context_ragged_value_types={}
  @context_ragged_split_types={} @Nfeature_list_sparse=1 @feature_list_sparse_types={int64} @Nfeature_list_dense=1
  @feature_list_dense_types={float32} @feature_list_dense_shapes={[]} @feature_list_ragged_value_types={}
  @feature_list_ragged_split_types={}
ParseSingleSequenceExample : serialized=:sequence feature_list_dense_missing_assumed_empty=[0] context_sparse_keys='n'
  context_dense_keys='f' feature_list_sparse_keys='n' feature_list_dense_keys='f' context_dense_defaults==1
  debug_name=[] @Ncontext_sparse=1 @Ncontext_dense=1 @Tcontext_dense={float32} @context_sparse_types={int64}
  @context_dense_shapes={[]} @Nfeature_list_sparse=1 @Nfeature_list_dense=1 @feature_list_sparse_types={int64}
  @feature_list_dense_types={float32} @feature_list_dense_shapes={[]}

# -- segments, counts, sets, sparse tensors
SegmentMax SegmentMean SegmentMin SegmentProd SegmentSum SegmentMaxV2 SegmentMinV2 SegmentProdV2 SegmentSumV2 :
  data=[n,*R] segment_ids=[n]:segments num_segments==n
UnsortedSegmentMax UnsortedSegmentMin UnsortedSegmentProd UnsortedSegmentSum : m:1..4 data=[*A,*R] segment_ids=[*A]<m
  num_segments==m
RaggedTensorToTensor : n:1..4 shape==-1 values=[n,*R] default_value=[] row_partition_tensors={0,n}
  @row_partition_types={'ROW_SPLITS'} @num_row_partition_tensors=1
RaggedRange : starts=[n](0..3) limits=[n](0..6)|[](0..6) deltas=[](1..2)
RaggedGather : n:1..4 params_nested_splits={0,1,n} params_dense_values=[n,*R] indices=[k]<2 @PARAMS_RAGGED_RANK=1
  @OUTPUT_RAGGED_RANK=1
RaggedTensorToSparse : n:1..4 rt_nested_splits={0,1,n} rt_dense_values=[n,*R] @RAGGED_RANK=1
RaggedTensorToVariant : n:1..4 v<- rt_nested_splits={0,1,n} rt_dense_values=[n,*R] @RAGGED_RANK=1
  @batched_input=true|false ; <-RaggedTensorFromVariant encoded_ragged=%v @Tvalues=$Tvalues @Tsplits=$Tsplits
  @input_ragged_rank=-1 @output_ragged_rank=1
RaggedTensorFromVariant RaggedTensorToVariantGradient : n:1..4 v<-RaggedTensorToVariant rt_nested_splits={0,1,n}
  rt_dense_values=[n,*R] @RAGGED_RANK=1 @batched_input=true @Tvalues=$Tvalues @Tsplits=$Tsplits ; encoded_ragged=%v
  encoded_ragged_grad=%v row_splits={0,1,n} dense_values_shape={n,*R} @input_ragged_rank=0|-1 @output_ragged_rank=1
RaggedBincount RaggedCountSparseOutput : n:1..4 splits={0,1,n} values=[n]<5 size=(0..6) weights=[0]|[n] @minlength=-1
  @maxlength=-1|3
SparseSegmentMean SparseSegmentSqrtN SparseSegmentSum SparseSegmentMeanWithNumSegments
  SparseSegmentSqrtNWithNumSegments SparseSegmentSumWithNumSegments : n:1..4 data=[n,*R] indices=[k]<n
  segment_ids=[k]:segments num_segments==k
SparseSegmentMeanGrad SparseSegmentSqrtNGrad SparseSegmentSumGrad SparseSegmentMeanGradV2 SparseSegmentSqrtNGradV2
  SparseSegmentSumGradV2 : n:1..4 k:1..4 grad=[k,*R] indices=[k]<n segment_ids=[k]:segments output_dim0==n
  dense_output_dim0==n
Bincount : arr=[*S]<5 size=(0..6) weights=[*S]|[0]
DenseBincount : input=[n]<5|[b,n]<5 size=(0..6) weights=[0]
DenseCountSparseOutput : values=[b,n]<5 weights=[0]|[b,n] @minlength=-1 @maxlength=-1|3
SparseBincount SparseCountSparseOutput : *L:2..2:1..3 k:0..p(L) indices=[k,2]:places(L) values=[k]<5 dense_shape={*L}
  size=(0..6) weights=[0]|[k] @minlength=-1 @maxlength=-1|3
DenseToDenseSetOperation : set1=[*A,?] set2=[*A,?] @set_operation='a-b'|'b-a'|'intersection'|'union'
DenseToSparseSetOperation : *A:1..2:1..3 m:1..3 *L:{*A,m} k:0..min(p(L),6) set1=[*A,?] set2_indices=[k,r(L)]:places(L)
  set2_values=[k] set2_shape={*L} @set_operation='a-b'|'b-a'|'intersection'|'union' @validate_indices=true
SparseToSparseSetOperation SetSize : *L:2..3:1..3 k:0..min(p(L),6) set_indices=[k,r(L)]:places(L) set_values=[k]
  set_shape={*L} set1_indices=[k,r(L)]:places(L) set1_values=[k] set1_shape={*L} set2_indices=[k,r(L)]:places(L)
  set2_values=[k] set2_shape={*L} @set_operation='a-b'|'b-a'|'intersection'|'union'
EditDistance : *L:2..3:1..3 k:0..min(p(L),6) hypothesis_indices=[k,r(L)]:places(L) hypothesis_values=[k]
  hypothesis_shape={*L} truth_indices=[k,r(L)]:places(L) truth_values=[k] truth_shape={*L}
SparseAdd SparseSparseMaximum SparseSparseMinimum : *L:1..3:1..3 k:0..min(p(L),6) m:0..min(p(L),6)
  a_indices=[k,r(L)]:places(L) a_values=[k] a_shape={*L} b_indices=[m,r(L)]:places(L) b_values=[m] b_shape={*L}
  thresh==0 @T=float32|float64|int32|int64|int8 @Treal=$T
SparseAddGrad : *L:1..3:1..3 k:0..min(p(L),6) a_indices=[k,r(L)]:places(L) b_indices=[k,r(L)]:places(L)
  sum_indices=[k,r(L)]:places(L) backprop_val_grad=[k]
SparseConcat : *L:1..3:1..3 k:0..min(p(L),6) indices=[k,r(L)]:places(L) values=[k] shapes={*L} @concat_dim=0|-1
SparseCross : *L:2..2:1..3 k:0..p(L) @N=1 indices=[k,2]:places(L) values=[k] shapes={*L} dense_inputs=[d(L,0),?]
  @sparse_types={int64} @dense_types={int64} @out_type=int64 @internal_type=int64 @hashed_output=true @num_buckets=(0..9)
  @hash_key=1
SparseCrossV2 : *L:2..2:1..3 k:0..p(L) @N=1 indices=[k,2]:places(L) values=[k] shapes={*L} dense_inputs=[d(L,0),?]
  sep='x' @sparse_types={int64}|{string} @dense_types={int64}|{string}
SparseCrossHashed : *L:2..2:1..3 k:0..p(L) @N=1 indices=[k,2]:places(L) values=[k] shapes={*L} dense_inputs=[d(L,0),?]
  num_buckets=(0..9) strong_hash=[] salt=[2] @sparse_types={int64}|{string} @dense_types={int64}|{string}
SparseDenseCwiseAdd SparseDenseCwiseDiv SparseDenseCwiseMul : *L:1..3:1..3 k:0..min(p(L),6) dense=[*b(L)](1..3)
  sp_indices=[k,r(L)]:places(L) sp_values=[k] sp_shape={*L}
SparseFillEmptyRows : *L:2..2:1..3 k:0..p(L) indices=[k,2]:places(L) values=[k] dense_shape={*L} default_value=[]
RaggedFillEmptyRows : m:1..4 value_rowids=[n]<m values=[n] nrows==m default_value=[]
RaggedCross : n:1..4 @Nsparse=0 @input_order='RD' ragged_values=[n] ragged_row_splits={0,1,n} dense_inputs=[2,?]
  @ragged_values_types={int64}|{string} @ragged_splits_types={int32}|{int64} @sparse_values_types={} @dense_types={int64}
  @out_values_type=int64 @hashed_output=true @num_buckets=(0..9) @hash_key=1
DecodeProtoV2 : bytes={''} @output_types={int64} @message_format='binary' @message_type='M' @field_names={'ffffff'} @descriptor_source='bytes://^)"
                                  // FileDescriptorSet: message M { optional int64 ffffff = 1; } in file a
                                  "\x18^\x01"
                                  "a\"\x13^\x01M\x12\x0e^\x06"
                                  "ffffff\x18\x01~\x01(\x03"
                                  R"('
EncodeProto : sizes=[2,1]<2 values=[2,1] @Tinput_types={int64} @message_type='M' @field_names={'ffffff'} @descriptor_source='bytes://^)"
                                  // FileDescriptorSet: message M { optional int64 ffffff = 1; } in file a
                                  "\x18^\x01"
                                  "a\"\x13^\x01M\x12\x0e^\x06"
                                  "ffffff\x18\x01~\x01(\x03"
                                  R"('
DecodeJSONExample : json_examples='{}'
DataFormatDimMap : x=[*S](-4..3)
DataFormatVecPermute : x=[4]|[2]|[4,2]|[2,2]
InplaceUpdate InplaceAdd InplaceSub : n:1..4 m:0..3 x=[n,*S] i=[m] v=[m,*S]
FakeParam : @shape=[*S]
DeviceIndex : @device_names={'CPU','GPU'}
SparseFillEmptyRowsGrad RaggedFillEmptyRowsGrad : m:1..4 reverse_index_map=[n]<m grad_values=[m]
SparseReduceMax SparseReduceMaxSparse SparseReduceSum SparseReduceSumSparse : *L:1..3:1..3 k:0..min(p(L),6)
  input_indices=[k,r(L)]:places(L) input_values=[k] input_shape={*L} reduction_axes={0}|{}|{-1}
SparseReorder : *L:1..3:1..3 k:0..min(p(L),6) input_indices=[k,r(L)]:places(L) input_values=[k] input_shape={*L}
SparseReshape : *L:1..3:1..3 k:0..min(p(L),6) input_indices=[k,r(L)]:places(L) input_shape={*L} new_shape={p(L)}|{-1}
SparseSlice SparseSliceGrad : *L:1..3:1..3 k:0..min(p(L),6) indices=[k,r(L)]:places(L) values=[k] shape={*L}
  start=[r(L)]=0 size={*L} input_indices=[k,r(L)]:places(L) input_start=[r(L)]=0 output_indices=[k,r(L)]:places(L)
  backprop_val_grad=[k]
SparseSoftmax : *L:2..3:1..3 k:0..min(p(L),6) sp_indices=[k,r(L)]:places(L) sp_values=[k] sp_shape={*L}
SparseSplit : *L:1..3:1..3 k:0..min(p(L),6) split_dim==0 indices=[k,r(L)]:places(L) values=[k] shape={*L}
  @num_split=(1..d(L,0))
SparseTensorDenseAdd SparseTensorDenseMatMul : *L:2..2:1..3 k:0..p(L) a_indices=[k,2]:places(L) a_values=[k] a_shape={*L}
  b=[*L]
SparseTensorDenseMatMul : ~close *L:2..2:1..3 k:0..p(L) a_indices=[k,2]:places(L) a_values=[k] a_shape={*L}
  b=[d(L,1),n] @adjoint_a=false @adjoint_b=false
SparseToDense : *L:0..3:1..3 k:0..min(p(L),6) sparse_indices=[k,r(L)]:places(L) output_shape={*L} sparse_values=[k]
  default_value=[]
SerializeSparse SerializeManySparse : *L:2..3:1..3 k:0..min(p(L),6) sparse_indices=[k,r(L)]:places(L) sparse_values=[k]
  sparse_shape={*L} @out_type=string|variant
DeserializeSparse : *L:1..3:1..3 k:0..min(p(L),6)
  s<-SerializeSparse @T=$dtype @out_type=$Tserialized sparse_indices=[k,r(L)]:places(L) sparse_values=[k]
  sparse_shape={*L} ; serialized_sparse=%s @Tserialized=string|variant
DeserializeManySparse : *L:2..3:1..3 k:0..min(p(L),6) s<-SerializeManySparse @T=$dtype @out_type=string
  sparse_indices=[k,r(L)]:places(L) sparse_values=[k] sparse_shape={*L} ; serialized_sparse=%s
_SparseTensorsMap : m<-
_SparseTensorsMapInsert : *L:2..2:1..3 s<-SerializeManySparse @T=float32 @out_type=variant sparse_indices=[2,2]:places(L)
  sparse_values=[2] sparse_shape={*L} ; m<-_SparseTensorsMap ; handle=%m serialized=%s
_SparseTensorsMapTake : *L:2..2:1..3 s<-SerializeManySparse @T=float32 @out_type=variant sparse_indices=[1,2]:places(L)
  sparse_values=[1] sparse_shape={*L} ; m<-_SparseTensorsMap ; <-_SparseTensorsMapInsert handle=%m serialized=%s ;
  handle=%m sparse_handles={0}

# -- variables
VarHandleOp : v<- @shape=[*S] ; <-VarIsInitializedOp resource=%v
ReadVariableOp VarIsInitializedOp VariableShape DestroyResourceOp DisableCopyOnRead _TakeVariable :
  v<-VarHandleOp @dtype=float32 @shape=[*S] ; <-AssignVariableOp @dtype=float32 resource=%v value=[*S] ; @dtype=float32
  resource=%v input=%v
AssignVariableOp AssignAddVariableOp AssignSubVariableOp : v<-VarHandleOp @shape=[*S] ; <-AssignVariableOp resource=%v
  value=[*S] ; resource=%v value=[*S] ; <-ReadVariableOp resource=%v
ResourceGather ResourceGatherNd : n:1..4 v<-VarHandleOp @shape=[n,*R] ; <-AssignVariableOp resource=%v value=[n,*R] ;
  resource=%v indices=[k,1]<n @batch_dims=0
ResourceScatterAdd ResourceScatterDiv ResourceScatterMax ResourceScatterMin ResourceScatterMul ResourceScatterSub
  ResourceScatterUpdate : n:1..4 v<-VarHandleOp @shape=[n,*R] ; <-AssignVariableOp resource=%v value=[n,*R] ;
  resource=%v indices=[k]<n updates=[k,*R](1..3) ; <-ReadVariableOp resource=%v
ResourceScatterNdAdd ResourceScatterNdMax ResourceScatterNdMin ResourceScatterNdSub ResourceScatterNdUpdate : n:1..4
  v<-VarHandleOp @dtype=$T @shape=[n,*R] ; <-AssignVariableOp @dtype=$T resource=%v value=[n,*R] ;
  ref=%v indices=[k,1]<n updates=[k,*R] ; <-ReadVariableOp @dtype=$T resource=%v
ResourceStridedSliceAssign : n:1..4 v<-VarHandleOp @dtype=$T @shape=[n,m] ; <-AssignVariableOp @dtype=$T resource=%v
  value=[n,m] ; ref=%v begin={0,0} end={n,m} strides={1,1} value=[n,m] @shrink_axis_mask=0 @new_axis_mask=0
  @ellipsis_mask=0 ; <-ReadVariableOp @dtype=$T resource=%v
ResourceCountUpTo : v<-VarHandleOp @dtype=$T @shape=[] ; <-AssignVariableOp @dtype=$T resource=%v value==0 ; resource=%v
  @limit=(1..5) ; <-ReadVariableOp @dtype=$T resource=%v
ResourceApplyAdaMax ResourceApplyAdadelta ResourceApplyAdagrad ResourceApplyAdagradDA ResourceApplyAdagradV2
  ResourceApplyAdam ResourceApplyAdamWithAmsgrad ResourceApplyAddSign ResourceApplyCenteredRMSProp ResourceApplyFtrl
  ResourceApplyFtrlV2 ResourceApplyGradientDescent ResourceApplyKerasMomentum ResourceApplyMomentum
  ResourceApplyPowerSign ResourceApplyProximalAdagrad ResourceApplyProximalGradientDescent ResourceApplyRMSProp :
  v<-VarHandleOp @dtype=$T @shape=[*S] ; <-AssignVariableOp @dtype=$T resource=%v value=[*S] ;
  p<-VarHandleOp @dtype=$T @shape=[*S] ; <-AssignVariableOp @dtype=$T resource=%p value=[*S](0.5..2.0) ;
  q<-VarHandleOp @dtype=$T @shape=[*S] ; <-AssignVariableOp @dtype=$T resource=%q value=[*S](0.5..2.0) ;
  s<-VarHandleOp @dtype=$T @shape=[*S] ; <-AssignVariableOp @dtype=$T resource=%s value=[*S](0.5..2.0) ;
  var=%v accum=%p accum_update=%q linear=%q m=%p v=%q vhat=%s mg=%p ms=%q mom=%s gradient_accumulator=%p
  gradient_squared_accumulator=%q grad=[*S] delta=[*S] lr=(0.0..1.0) alpha=(0.0..1.0) l1=(0.0..1.0) l2=(0.0..1.0)
  l2_shrinkage=(0.0..1.0) lr_power==-0.5 rho=(0.1..0.9) epsilon=(0.01..0.1) momentum=(0.0..0.9) beta=(0.1..0.9)
  beta1=(0.1..0.9) beta2=(0.1..0.9) beta1_power=(0.1..0.9) beta2_power=(0.1..0.9) logbase=(0.5..1.0)
  sign_decay=(0.1..1.0) global_step=(1..3) ; <-ReadVariableOp @dtype=$T resource=%v
ResourceSparseApplyAdadelta ResourceSparseApplyAdagrad ResourceSparseApplyAdagradDA ResourceSparseApplyAdagradV2
  ResourceSparseApplyCenteredRMSProp ResourceSparseApplyFtrl ResourceSparseApplyFtrlV2 ResourceSparseApplyKerasMomentum
  ResourceSparseApplyMomentum ResourceSparseApplyProximalAdagrad ResourceSparseApplyProximalGradientDescent
  ResourceSparseApplyRMSProp : n:1..4 v<-VarHandleOp @dtype=$T @shape=[n,*R] ;
  <-AssignVariableOp @dtype=$T resource=%v value=[n,*R] ;
  p<-VarHandleOp @dtype=$T @shape=[n,*R] ; <-AssignVariableOp @dtype=$T resource=%p value=[n,*R](0.5..2.0) ;
  q<-VarHandleOp @dtype=$T @shape=[n,*R] ; <-AssignVariableOp @dtype=$T resource=%q value=[n,*R](0.5..2.0) ;
  s<-VarHandleOp @dtype=$T @shape=[n,*R] ; <-AssignVariableOp @dtype=$T resource=%s value=[n,*R](0.5..2.0) ;
  var=%v accum=%p accum_update=%q linear=%q mg=%p ms=%q mom=%s gradient_accumulator=%p
  gradient_squared_accumulator=%q grad=[k,*R] indices=[k]<n lr=(0.0..1.0) alpha=(0.0..1.0) l1=(0.0..1.0) l2=(0.0..1.0)
  l2_shrinkage=(0.0..1.0) lr_power==-0.5 rho=(0.1..0.9) epsilon=(0.01..0.1) momentum=(0.0..0.9) global_step=(1..3) ;
  <-ReadVariableOp @dtype=$T resource=%v

# -- queues, barriers, tables, readers, iterators, accumulators
FIFOQueueV2 RandomShuffleQueueV2 PaddingFIFOQueueV2 PriorityQueueV2 _DeviceQueue : q<- @component_types={float32} @shapes={[*S]}
  @capacity=-1|(1..3) @min_after_dequeue=0 ; <-QueueSizeV2 handle=%q
QueueEnqueueV2 : q<-FIFOQueueV2 @component_types=$Tcomponents ; handle=%q components=[*S] @timeout_ms=-1 ;
  <-QueueSizeV2 handle=%q
QueueEnqueueManyV2 : q<-FIFOQueueV2 @component_types={float32} @shapes={[*S]} ; handle=%q components=[n,*S]
  @Tcomponents={float32} @timeout_ms=-1 ; <-QueueSizeV2 handle=%q
QueueDequeueV2 : q<-FIFOQueueV2 @component_types=$component_types ; <-QueueEnqueueV2 @Tcomponents=$component_types
  handle=%q components=[*S] ; handle=%q @timeout_ms=-1
QueueDequeueManyV2 QueueDequeueUpToV2 : n:1..3 q<-FIFOQueueV2 @component_types={float32} @shapes={[*S]} ;
  <-QueueEnqueueManyV2 @Tcomponents={float32} handle=%q components=[n,*S] ; handle=%q n=(0..n)
  @component_types={float32} @timeout_ms=-1
QueueDequeueManyV2 QueueDequeueV2 : q<-PaddingFIFOQueueV2 @component_types={float32} @shapes={[*S]} ;
  <-QueueEnqueueV2 @Tcomponents={float32} handle=%q components=[*S] ; handle=%q n==1 @component_types={float32}
  @timeout_ms=-1
QueueDequeueV2 : q<-PriorityQueueV2 @component_types={float32} @shapes={[*S]} ; <-QueueEnqueueV2
  @Tcomponents={int64,float32} handle=%q components=[] ; handle=%q @component_types={int64,float32} @timeout_ms=-1
QueueCloseV2 QueueIsClosedV2 QueueSizeV2 : q<-RandomShuffleQueueV2 @component_types={float32} ; handle=%q ;
  <-QueueIsClosedV2 handle=%q
Barrier : b<- @component_types={float32} @shapes={[*S]} @capacity=-1 ; <-BarrierReadySize handle=%b
BarrierInsertMany : b<-Barrier @component_types={$T,$T} @shapes={[*S],[]} ; handle=%b keys=[k]:names values=[k,*S]
  @component_index=0 ; <-BarrierIncompleteSize handle=%b
BarrierTakeMany : b<-Barrier @component_types={float32,int64} @shapes={[*S],[]} ; <-BarrierInsertMany @T=float32
  @component_index=0 handle=%b keys={'x','y'} values=[2,*S] ; <-BarrierInsertMany @T=int64 @component_index=1 handle=%b
  keys={'x','y'} values=[2] ; @component_types={float32,int64} handle=%b num_elements=(1..2) @timeout_ms=-1
  @allow_small_batch=false @wait_for_incomplete=false
BarrierClose BarrierReadySize BarrierIncompleteSize : b<-Barrier @component_types={float32,int64} @shapes={[],[]} ; <-BarrierInsertMany
  @T=float32 @component_index=0 handle=%b keys={'x'} values=[1] ; handle=%b
HashTableV2 MutableHashTableV2 : t<- @key_dtype=int64|string @value_dtype=int64|float32|string ;
  <-LookupTableSizeV2 table_handle=%t
MutableDenseHashTableV2 : empty_key==-1 deleted_key==-2 @key_dtype=int64 @value_dtype=float32|int64 @value_shape=[]
  @initial_num_buckets=16 @max_load_factor=0.8
MutableHashTableOfTensorsV2 : t<- @key_dtype=int64|string @value_dtype=int64|float32|string @value_shape=[*S] ;
  <-LookupTableSizeV2 table_handle=%t
InitializeTableV2 : t<-HashTableV2 @key_dtype=$Tkey @value_dtype=$Tval ; @Tkey=int64|int32 @Tval=int64|float32|string
  table_handle=%t keys=[n]:permutation values=[n]
InitializeTableFromTextFileV2 : <-WriteFile filename='$D/words' contents='a~1^b~2' ; t<-HashTableV2 @key_dtype=string
  @value_dtype=int64 ; table_handle=%t filename='$D/words' @key_index=-2|0 @value_index=-1|1 @vocab_size=-1|2
  @delimiter='~' @offset=0 ; <-LookupTableSizeV2 table_handle=%t
LookupTableExportV2 : t<-MutableHashTableV2 @key_dtype=$Tkeys @value_dtype=$Tvalues ; <-LookupTableInsertV2 @Tin=$Tkeys
  @Tout=$Tvalues table_handle=%t keys=[1] values=[1] ; @Tkeys=int64|string @Tvalues=int64|float32|string
  table_handle=%t
LookupTableFindV2 LookupTableImportV2 LookupTableInsertV2 : t<-MutableHashTableV2 @key_dtype=$Tin @value_dtype=$Tout ;
  @Tin=int64|string @Tout=int64|float32|string table_handle=%t keys=[n] values=[n] default_value=[]
LookupTableRemoveV2 LookupTableSizeV2 : t<-MutableHashTableV2 @key_dtype=int64 @value_dtype=float32 ;
  <-LookupTableInsertV2 @Tin=int64 @Tout=float32 table_handle=%t keys={1,2} values=[2] ; @Tin=int64 table_handle=%t
  keys={1} ; <-LookupTableSizeV2 table_handle=%t
LookupTableFindV2 LookupTableInsertV2 : t<-MutableDenseHashTableV2 @key_dtype=int64 @value_dtype=float32 empty_key==-1
  deleted_key==-2 @initial_num_buckets=4 ; @Tin=int64 @Tout=float32 table_handle=%t keys=[n]<9 values=[n]
  default_value=[]
FixedLengthRecordReaderV2 : r<- @record_bytes=(1..4) @header_bytes=0 @footer_bytes=0 @hop_bytes=0 @encoding='' ;
  <-ReaderNumRecordsProducedV2 reader_handle=%r
IdentityReaderV2 TFRecordReaderV2 TextLineReaderV2 WholeFileReaderV2 : r<- @compression_type='' ;
  <-ReaderNumWorkUnitsCompletedV2 reader_handle=%r
ReaderReadV2 ReaderReadUpToV2 : <-WriteFile filename='$D/lines' contents='a^b^c' ; q<-FIFOQueueV2
  @component_types={string} @shapes={[]} ; <-QueueEnqueueV2 @Tcomponents={string} handle=%q components='$D/lines' ;
  r<-TextLineReaderV2 ; reader_handle=%r queue_handle=%q num_records=(1..3) ; <-ReaderNumRecordsProducedV2 reader_handle=%r
ReaderReadV2 ReaderReadUpToV2 : <-WriteFile filename='$D/bytes' contents='abcdef' ; q<-FIFOQueueV2
  @component_types={string} @shapes={[]} ; <-QueueEnqueueV2 @Tcomponents={string} handle=%q components='$D/bytes' ;
  r<-FixedLengthRecordReaderV2 @record_bytes=2 ; reader_handle=%r queue_handle=%q num_records=(1..3)
ReaderReadV2 ReaderReadUpToV2 : q<-FIFOQueueV2 @component_types={string} @shapes={[]} ; <-QueueEnqueueV2
  @Tcomponents={string} handle=%q components=[] ; r<-IdentityReaderV2 ; reader_handle=%r queue_handle=%q num_records==1
ReaderNumRecordsProducedV2 ReaderNumWorkUnitsCompletedV2 ReaderResetV2 : r<-IdentityReaderV2 ; reader_handle=%r
IteratorV2 : @shared_name='fuzz_numbers' @output_types={float32,int64} @output_shapes={[2],[]}
IteratorGetNext : i<-IteratorV2 @shared_name='fuzz_numbers' @output_types={float32,int64} @output_shapes={[2],[]} ;
  iterator=%i @output_types={float32,int64} @output_shapes={[2],[]}
ResourceConditionalAccumulator SparseConditionalAccumulator : a<- @shape=[*S] ;
  <-ResourceAccumulatorNumAccumulated handle=%a
ResourceAccumulatorApplyGradient ResourceAccumulatorNumAccumulated ResourceAccumulatorSetGlobalStep :
  a<-ResourceConditionalAccumulator @dtype=float32 @shape=[*S] ; handle=%a local_step=(0..1) gradient=[*S] @dtype=float32
  @replica=-1 new_global_step=(0..3) ; <-ResourceAccumulatorNumAccumulated handle=%a
ResourceAccumulatorTakeGradient : a<-ResourceConditionalAccumulator @shape=[*S] ; <-ResourceAccumulatorApplyGradient
  handle=%a local_step==0 gradient=[*S] ; handle=%a num_required==1
SparseAccumulatorApplyGradient : n:1..4 k:0..n a<-SparseConditionalAccumulator @shape=[n,*R] ; handle=%a local_step==0
  gradient_indices=[k]:permutation gradient_values=[k,*R] gradient_shape={n,*R} @has_known_shape=true @replica=-1 ;
  <-ResourceAccumulatorNumAccumulated handle=%a
SparseAccumulatorTakeGradient : n:1..4 k:1..n a<-SparseConditionalAccumulator @shape=[n,*R] ;
  <-SparseAccumulatorApplyGradient handle=%a local_step==0 gradient_indices=[k]:permutation gradient_values=[k,*R]
  gradient_shape={n,*R} @has_known_shape=true ; handle=%a num_required==1
CreateSummaryFileWriter : w<-SummaryWriter ; writer=%w logdir='$D/logs' max_queue=(0..3) flush_millis==1000
  filename_suffix='' ; <-FlushSummaryWriter writer=%w
FlushSummaryWriter CloseSummaryWriter : w<-SummaryWriter ; <-CreateSummaryFileWriter writer=%w logdir='$D/logs'
  max_queue==1 flush_millis==1000 filename_suffix='' ; writer=%w
WriteSummary WriteScalarSummary WriteHistogramSummary WriteImageSummary WriteAudioSummary WriteGraphSummary : h:1..4 w:1..4
  s<-SummaryWriter ; <-CreateSummaryFileWriter writer=%s logdir='$D/logs' max_queue==1 flush_millis==1000
  filename_suffix='' ; writer=%s step=[] tag='tag' value=[] values=[*S] tensor=[b,h,w]|[]|[b,h,w,3] summary_metadata=''
  bad_color={255,0,0,255} sample_rate=(1.0..9.0) ; <-FlushSummaryWriter writer=%s
WriteRawProtoSummary ImportEvent : w<-SummaryWriter ; <-CreateSummaryFileWriter writer=%w logdir='$D/logs' max_queue==1
  flush_millis==1000 filename_suffix='' ; writer=%w step=[] tensor='' event=''
_StagingArea : a<- @dtypes={float32} @capacity=0|(1..3) @memory_limit=0 ; <-_StagingAreaSize handle=%a
_StagingAreaPut : a<-_StagingArea @dtypes=$dtypes ; handle=%a values=[*S] ; <-_StagingAreaSize handle=%a
_StagingAreaGet _StagingAreaPeek : a<-_StagingArea @dtypes=$dtypes ; <-_StagingAreaPut @dtypes=$dtypes handle=%a
  values=[*S] ; handle=%a index==0
_StagingAreaSize _StagingAreaClear : a<-_StagingArea @dtypes={float32} ; <-_StagingAreaPut @dtypes={float32} handle=%a
  values=[*S] ; handle=%a
_StagingMap : a<- @capacity=0|(1..3) @memory_limit=0 ; <-_StagingMapSize handle=%a
_StagingMapPut : a<-_StagingMap ; handle=%a key=[] indices={0} values=[*S] @dtypes={float32} @fake_dtypes={float32} ; <-_StagingMapSize handle=%a
_StagingMapTake _StagingMapPeek : a<-_StagingMap ; <-_StagingMapPut handle=%a key==3 indices={0} values=[2] @dtypes={float32} @fake_dtypes={float32} ;
  handle=%a key==3 indices={0} @dtypes={float32}
_StagingMapTakeAny : a<-_StagingMap ; <-_StagingMapPut handle=%a key==3 indices={0} values=[2] @dtypes={float32} @fake_dtypes={float32} ; handle=%a indices={0} @dtypes={float32}
_StagingMapSize _StagingMapIncompleteSize _StagingMapClear : a<-_StagingMap ; <-_StagingMapPut handle=%a key==3 indices={0} values=[2] @dtypes={float32} @fake_dtypes={float32} ; handle=%a
MutexLock : m<-MutexV2 ; mutex=%m
ConsumeMutexLock : m<-MutexV2 ; l<-MutexLock mutex=%m ; mutex_lock=%l
_EventCount : e<- @shared_name='' ; <-_EventCountAdvance handle=%e
_EventCountAdvance _EventCountAwait : e<-_EventCount ; <-_EventCountAdvance handle=%e ; handle=%e count=(0..1) @slack=0

# -- stacks, arrays and lists of tensors, optionals
StackV2 : max_size==-1|=3
StackPushV2 : s<-StackV2 max_size==3 @elem_type=$T ; handle=%s elem=[*S]
StackPopV2 StackCloseV2 : s<-StackV2 max_size==3 @elem_type=float32 ; <-StackPushV2 @T=float32 handle=%s elem=[*S] ;
  handle=%s @elem_type=float32
TensorArrayV3 : a<- size=(0..3) @element_shape=[*S] ; <-TensorArraySizeV3 handle=%a:0 flow_in=%a:1
TensorArrayWriteV3 : a<-TensorArrayV3 size==3 @dtype=$T ; handle=%a:0 index=<3 value=[*S] flow_in=%a:1
TensorArrayReadV3 TensorArrayGatherV3 TensorArraySizeV3 TensorArrayConcatV3 TensorArrayCloseV3 : a<-TensorArrayV3 size==1
  @dtype=float32 ; w<-TensorArrayWriteV3 @T=float32 handle=%a:0 index==0 value=[2,*S] flow_in=%a:1 ;
  handle=%a:0 index==0 indices={0} flow_in=%w @dtype=float32 @element_shape=? @element_shape_except0=?
TensorArrayScatterV3 TensorArraySplitV3 : a<-TensorArrayV3 size==3 @dtype=$T ; w<- handle=%a:0
  indices=[3]:permutation lengths=[3]=1 value=[3,*S] flow_in=%a:1 ; <-TensorArraySizeV3 handle=%a:0 flow_in=%w
TensorArrayGradV3 TensorArrayGradWithShape : a<-TensorArrayV3 size==1 @dtype=float32 ; w<-TensorArrayWriteV3 @T=float32
  handle=%a:0 index==0 value=[*S] flow_in=%a:1 ; g<- handle=%a:0 flow_in=%w shape_to_prepend={n} @source='gradients' ;
  <-TensorArraySizeV3 handle=%g:0 flow_in=%g:1
EmptyTensorList : l<- element_shape={*S} max_num_elements==-1|=3 ; <-TensorListLength input_handle=%l
TensorListReserve : l<- element_shape={*S} num_elements=(0..3) ; <-TensorListLength input_handle=%l
TensorListFromTensor TensorListScatter TensorListScatterV2 TensorListSplit : l<- tensor=[3,*S] element_shape={*S}
  indices=[3]:permutation num_elements==-1|=3 lengths=[3]=1 ; <-TensorListLength input_handle=%l
TensorListSplit : l<- tensor=[3,*S] element_shape={-1,*S} lengths={1,2} ; <-TensorListConcatV2
  @element_dtype=$element_dtype input_handle=%l element_shape={-1,*S} leading_dims={1,2}
TensorListConcat TensorListConcatV2 TensorListElementShape TensorListGather TensorListGetItem TensorListLength
  TensorListPopBack TensorListStack : n:1..3 l<-TensorListFromTensor tensor=[n,2,*S] element_shape={2,*S}
  @element_dtype=float32 ; input_handle=%l element_shape={2,*S} leading_dims=[n]=2 indices=[k]<n index=<n
  @element_dtype=float32 @num_elements=-1|n @element_shape=?
TensorListConcatLists TensorListPushBack TensorListResize TensorListSetItem TensorListScatterIntoExistingList : n:1..3
  l<-TensorListFromTensor tensor=[n,*S] element_shape={*S} @element_dtype=float32 ;
  o<- input_handle=%l input_a=%l input_b=%l tensor=[*S] size=(0..4) index=<n item=[*S] indices={} @element_dtype=float32 ;
  <-TensorListLength input_handle=%o
TensorListScatterIntoExistingList : n:1..3 l<-TensorListFromTensor tensor=[n,*S] element_shape={*S}
  @element_dtype=float32 ; o<- input_handle=%l tensor=[n,*S] indices=[n]:permutation @element_dtype=float32 ;
  <-TensorListStack input_handle=%o element_shape={*S} @element_dtype=float32
OptionalFromValue : components=[*S]
OptionalGetValue : o<-OptionalFromValue @Toutput_types=$output_types components=[*S] ; optional=%o @output_shapes=?
OptionalHasValue : o<-OptionalFromValue @Toutput_types={float32} components=[*S] ; optional=%o
OptionalHasValue : o<-OptionalNone ; optional=%o

# -- datasets
RangeDataset : d<- start==5 stop==6 step==1 @output_types={int64} @output_shapes={[]} ; <-DatasetToSingleElement dataset=%d @output_types={int64} @output_shapes={[]}
TensorDataset : d<- components=[] @Toutput_types={int64} @output_shapes={[]} ; <-DatasetToSingleElement dataset=%d @output_types={int64} @output_shapes={[]}
TensorSliceDataset : d<- components=[1] @Toutput_types={int64} @output_shapes={[]} ; <-DatasetToSingleElement dataset=%d @output_types={int64} @output_shapes={[]}
RepeatDataset TakeDataset AssertCardinalityDataset : r<-RangeDataset start==5 stop==6 step==1 @output_types={int64} @output_shapes={[]} ; d<- input_dataset=%r count==1 cardinality==1 @output_types={int64} @output_shapes={[]} ; <-DatasetToSingleElement dataset=%d @output_types={int64} @output_shapes={[]}
SkipDataset : r<-RangeDataset start==5 stop==6 step==1 @output_types={int64} @output_shapes={[]} ; d<- input_dataset=%r count==0 @output_types={int64} @output_shapes={[]} ; <-DatasetToSingleElement dataset=%d @output_types={int64} @output_shapes={[]}
ShardDataset : r<-RangeDataset start==5 stop==6 step==1 @output_types={int64} @output_shapes={[]} ; d<- input_dataset=%r num_shards==1 index==0 @output_types={int64} @output_shapes={[]} ; <-DatasetToSingleElement dataset=%d @output_types={int64} @output_shapes={[]}
PrefetchDataset : r<-RangeDataset start==5 stop==6 step==1 @output_types={int64} @output_shapes={[]} ; d<- input_dataset=%r buffer_size=(-1..3) @output_types={int64} @output_shapes={[]} ; <-DatasetToSingleElement dataset=%d @output_types={int64} @output_shapes={[]}
CacheDataset : r<-RangeDataset start==5 stop==6 step==1 @output_types={int64} @output_shapes={[]} ; d<- input_dataset=%r filename='' @output_types={int64} @output_shapes={[]} ; <-DatasetToSingleElement dataset=%d @output_types={int64} @output_shapes={[]}
CacheDatasetV2 : r<-RangeDataset start==5 stop==6 step==1 @output_types={int64} @output_shapes={[]} ; c<-AnonymousMemoryCache ; d<- input_dataset=%r filename='' cache=%c:0 @output_types={int64} @output_shapes={[]} ; <-DatasetToSingleElement dataset=%d @output_types={int64} @output_shapes={[]}
CacheDatasetV2 : r<-RangeDataset start==5 stop==6 step==1 @output_types={int64} @output_shapes={[]} ; c<-DummyMemoryCache ; d<- input_dataset=%r filename='' cache=%c @output_types={int64} @output_shapes={[]} ; <-DatasetToSingleElement dataset=%d @output_types={int64} @output_shapes={[]}
ShuffleDataset ShuffleAndRepeatDataset : r<-RangeDataset start==5 stop==6 step==1 @output_types={int64} @output_shapes={[]} ; d<- input_dataset=%r buffer_size=(1..3) seed==1 seed2==2 count==1 @output_types={int64} @output_shapes={[]} ; <-DatasetToSingleElement dataset=%d @output_types={int64} @output_shapes={[]}
ShuffleDatasetV2 : r<-RangeDataset start==5 stop==6 step==1 @output_types={int64} @output_shapes={[]} ; g<-AnonymousRandomSeedGenerator seed==1 seed2==2 ; d<- input_dataset=%r buffer_size=(1..3) seed_generator=%g:0 @output_types={int64} @output_shapes={[]} ; <-DatasetToSingleElement dataset=%d @output_types={int64} @output_shapes={[]}
ShuffleDatasetV3 ShuffleAndRepeatDatasetV2 : r<-RangeDataset start==5 stop==6 step==1 @output_types={int64} @output_shapes={[]} ; g<-DummySeedGenerator ; d<- input_dataset=%r buffer_size=(1..3) seed==1 seed2==2 count==1
  seed_generator=%g @output_types={int64} @output_shapes={[]} ; <-DatasetToSingleElement dataset=%d @output_types={int64} @output_shapes={[]}
RandomDataset : r<- seed==1 seed2==2 @output_types={int64} @output_shapes={[]} ; d<-TakeDataset input_dataset=%r count==1 @output_types={int64} @output_shapes={[]} ; <-DatasetToSingleElement dataset=%d @output_types={int64} @output_shapes={[]}
RandomDatasetV2 : g<-DummySeedGenerator ; r<- seed==1 seed2==2 seed_generator=%g @output_types={int64} @output_shapes={[]} ; d<-TakeDataset input_dataset=%r count==1 @output_types={int64} @output_shapes={[]} ; <-DatasetToSingleElement dataset=%d @output_types={int64} @output_shapes={[]}
AnonymousSeedGenerator AnonymousRandomSeedGenerator : g<- seed==1 seed2==2 reshuffle==1 ; <-DeleteSeedGenerator handle=%g:0 deleter=%g:1
AnonymousMemoryCache : c<- ; <-DeleteMemoryCache handle=%c:0 deleter=%c:1
DummySeedGenerator : g<- ; o<-OptionalNone ; <-DeleteSeedGenerator handle=%g deleter=%o
DummyMemoryCache : g<- ; o<-OptionalNone ; <-DeleteMemoryCache handle=%g deleter=%o
DeleteSeedGenerator DeleteRandomSeedGenerator DeleteMemoryCache DeleteIterator : g<-DummySeedGenerator ; o<-OptionalNone ; handle=%g deleter=%o
BatchDataset BatchDatasetV2 ParallelBatchDataset : r<-RangeDataset start==5 stop==6 step==1 @output_types={int64} @output_shapes={[]} ; d<- input_dataset=%r batch_size=(1..3) num_parallel_calls==1 drop_remainder==0 @output_types={int64} @output_shapes={[?]} ; <-DatasetToSingleElement dataset=%d @output_types={int64} @output_shapes={[?]}
PaddedBatchDataset PaddedBatchDatasetV2 : r<-TensorDataset components=[2] @Toutput_types={int64} @output_shapes={[2]} ; d<- input_dataset=%r
  batch_size=(1..3) @N=1 padded_shapes={3} padding_values=[] drop_remainder==0 @Toutput_types={int64} @output_shapes={[?,3]} ;
  <-DatasetToSingleElement dataset=%d @output_types={int64} @output_shapes={[?,3]}
WindowDataset : r<-RangeDataset start==5 stop==6 step==1 @output_types={int64} @output_shapes={[]} ; w<- input_dataset=%r size=(1..3) shift==1 stride==1 drop_remainder==0 @output_types={variant} @output_shapes={[]} ;
  <-DatasetCardinality input_dataset=%w
ListDataset : d<- tensors=[] @Tinput_types={int64} @output_types={int64} @output_shapes={[]} ; <-DatasetToSingleElement dataset=%d @output_types={int64} @output_shapes={[]}
RebatchDatasetV2 : r<-TensorDataset components=[2] @Toutput_types={int64} @output_shapes={[2]} ; d<- input_dataset=%r batch_sizes={2,3} drop_remainder==0 @output_types={int64} @output_shapes={[?]} ; <-DatasetToSingleElement dataset=%d @output_types={int64} @output_shapes={[?]}
DenseToSparseBatchDataset : r<-TensorDataset components=[2] @Toutput_types={int64} @output_shapes={[2]} ; d<- input_dataset=%r batch_size=(1..3) row_shape={3} @output_types={variant} @output_shapes={[3]} ; <-DatasetCardinality input_dataset=%d
SamplingDataset : r<-RangeDataset start==5 stop==6 step==1 @output_types={int64} @output_shapes={[]} ; d<- input_dataset=%r rate==1 seed==1 seed2==2 @output_types={int64} @output_shapes={[]} ; <-DatasetToSingleElement dataset=%d @output_types={int64} @output_shapes={[]}
SaveDataset : r<-RangeDataset start==5 stop==6 step==1 @output_types={int64} @output_shapes={[]} ; input_dataset=%r path='$D/saved' @Tshard_func_args={} @shard_func='node{name:"argument_0"~op:"Placeholder"~attr{key:"dtype"~value{type:DT_INT64}}}node{name:"result_0"~op:"Identity"~input:"argument_0"~attr{key:"T"~value{type:DT_INT64}}}'
SaveDatasetV2 : r<-RangeDataset start==5 stop==6 step==1 @output_types={int64} @output_shapes={[]} ; d<- input_dataset=%r path='$D/saved_too' @Tshard_func_args={} @shard_func='node{name:"argument_0"~op:"Placeholder"~attr{key:"dtype"~value{type:DT_INT64}}}node{name:"result_0"~op:"Identity"~input:"argument_0"~attr{key:"T"~value{type:DT_INT64}}}' @output_types={int64} @output_shapes={[]} ; <-DatasetToSingleElement dataset=%d @output_types={int64} @output_shapes={[]}
SnapshotDatasetV2 : r<-RangeDataset start==5 stop==6 step==1 @output_types={int64} @output_shapes={[]} ; d<- input_dataset=%r path='$D/snapshot' @Tshard_func_args={} @Treader_func_args={} @hash_valid=true @hash=(1..9) @shard_func='node{name:"argument_0"~op:"Placeholder"~attr{key:"dtype"~value{type:DT_INT64}}}node{name:"result_0"~op:"Identity"~input:"argument_0"~attr{key:"T"~value{type:DT_INT64}}}' @reader_func='node{name:"argument_0"~op:"Placeholder"~attr{key:"dtype"~value{type:DT_VARIANT}}}node{name:"result_0"~op:"Identity"~input:"argument_0"~attr{key:"T"~value{type:DT_VARIANT}}}' @output_types={int64} @output_shapes={[]} ; <-DatasetCardinality input_dataset=%d
LoadDataset : d<- path='$D/none' @Treader_func_args={} @reader_func='node{name:"argument_0"~op:"Placeholder"~attr{key:"dtype"~value{type:DT_VARIANT}}}node{name:"result_0"~op:"Identity"~input:"argument_0"~attr{key:"T"~value{type:DT_VARIANT}}}' @output_types={int64} @output_shapes={[]} ; <-DatasetCardinality input_dataset=%d
DatasetToTFRecord : t<-TensorDataset components='a' @Toutput_types={string} @output_shapes={[]} ; input_dataset=%t filename='$D/written' compression_type=''
GroupByReducerDataset : r<-RangeDataset start==5 stop==6 step==1 @output_types={int64} @output_shapes={[]} ; d<- input_dataset=%r @Tkey_func_other_arguments={} @Tinit_func_other_arguments={} @Treduce_func_other_arguments={}
  @Tfinalize_func_other_arguments={} @key_func='node{name:"argument_0"~op:"Placeholder"~attr{key:"dtype"~value{type:DT_INT64}}}node{name:"result_0"~op:"Identity"~input:"argument_0"~attr{key:"T"~value{type:DT_INT64}}}' @init_func='node{name:"argument_0"~op:"Placeholder"~attr{key:"dtype"~value{type:DT_INT64}}}node{name:"result_0"~op:"Identity"~input:"argument_0"~attr{key:"T"~value{type:DT_INT64}}}' @reduce_func='node{name:"argument_0"~op:"Placeholder"~attr{key:"dtype"~value{type:DT_INT64}}}node{name:"argument_1"~op:"Placeholder"~attr{key:"dtype"~value{type:DT_INT64}}}node{name:"result_0"~op:"AddV2"~input:"argument_0"~input:"argument_1"~attr{key:"T"~value{type:DT_INT64}}}' @finalize_func='node{name:"argument_0"~op:"Placeholder"~attr{key:"dtype"~value{type:DT_INT64}}}node{name:"result_0"~op:"Identity"~input:"argument_0"~attr{key:"T"~value{type:DT_INT64}}}' @output_types={int64} @output_shapes={[]} ; <-DatasetToSingleElement dataset=%d @output_types={int64} @output_shapes={[]}
UnbatchDataset : r<-TensorDataset components=[1] @Toutput_types={int64} @output_shapes={[1]} ; d<- input_dataset=%r @output_types={int64} @output_shapes={[]} ; <-DatasetToSingleElement dataset=%d @output_types={int64} @output_shapes={[]}
ZipDataset : r<-RangeDataset start==5 stop==6 step==1 @output_types={int64} @output_shapes={[]} ; d<- @N=1 input_datasets=%r @output_types={int64} @output_shapes={[]} ; <-DatasetToSingleElement dataset=%d @output_types={int64} @output_shapes={[]}
ConcatenateDataset : r<-RangeDataset start==5 stop==6 step==1 @output_types={int64} @output_shapes={[]} ; e<-TakeDataset input_dataset=%r count==0 @output_types={int64} @output_shapes={[]} ; d<- input_dataset=%r another_dataset=%e @output_types={int64} @output_shapes={[]} ; <-DatasetToSingleElement dataset=%d @output_types={int64} @output_shapes={[]}
DirectedInterleaveDataset : r<-RangeDataset start==5 stop==6 step==1 @output_types={int64} @output_shapes={[]} ; s<-RangeDataset start==0 stop==1 step==1 @output_types={int64} @output_shapes={[]} ; d<- @N=1 selector_input_dataset=%s data_input_datasets=%r @output_types={int64} @output_shapes={[]} ; <-DatasetToSingleElement dataset=%d @output_types={int64} @output_shapes={[]}
OptionsDataset ModelDataset AssertNextDataset OptimizeDataset OptimizeDatasetV2 PrivateThreadPoolDataset MaxIntraOpParallelismDataset FinalizeDataset
  NonSerializableDataset IgnoreErrorsDataset RewriteDataset : r<-RangeDataset start==5 stop==6 step==1 @output_types={int64} @output_shapes={[]} ; d<- input_dataset=%r @serialized_options='' transformations={'a'} optimizations={'a'}
  optimizations_enabled={'a'} optimizations_disabled={'a'} optimizations_default={'a'} num_threads==1 max_intra_op_parallelism==1 rewrite_name='a' @output_types={int64} @output_shapes={[]} ; <-DatasetToSingleElement dataset=%d @output_types={int64} @output_shapes={[]}
MapDataset ParallelMapDataset ParallelMapDatasetV2 : r<-RangeDataset start==5 stop==6 step==1 @output_types={int64} @output_shapes={[]} ; d<- input_dataset=%r @Targuments={} num_parallel_calls==1 @f='node{name:"argument_0"~op:"Placeholder"~attr{key:"dtype"~value{type:DT_INT64}}}node{name:"result_0"~op:"Identity"~input:"argument_0"~attr{key:"T"~value{type:DT_INT64}}}' @output_types={int64} @output_shapes={[]} ; <-DatasetToSingleElement dataset=%d @output_types={int64} @output_shapes={[]}
MapAndBatchDataset : r<-RangeDataset start==5 stop==6 step==1 @output_types={int64} @output_shapes={[]} ; d<- input_dataset=%r @Targuments={} batch_size=(1..3) num_parallel_calls==1 drop_remainder==0 @f='node{name:"argument_0"~op:"Placeholder"~attr{key:"dtype"~value{type:DT_INT64}}}node{name:"result_0"~op:"Identity"~input:"argument_0"~attr{key:"T"~value{type:DT_INT64}}}' @output_types={int64} @output_shapes={[?]} ; <-DatasetToSingleElement dataset=%d @output_types={int64} @output_shapes={[?]}
FilterDataset ParallelFilterDataset TakeWhileDataset : r<-RangeDataset start==5 stop==6 step==1 @output_types={int64} @output_shapes={[]} ; d<- input_dataset=%r @Targuments={} num_parallel_calls==1 @predicate='node{name:"argument_0"~op:"Placeholder"~attr{key:"dtype"~value{type:DT_INT64}}}node{name:"result_0"~op:"Equal"~input:"argument_0"~input:"argument_0"~attr{key:"T"~value{type:DT_INT64}}}' @output_types={int64} @output_shapes={[]} ; <-DatasetToSingleElement dataset=%d @output_types={int64} @output_shapes={[]}
ScanDataset : r<-RangeDataset start==5 stop==6 step==1 @output_types={int64} @output_shapes={[]} ; d<- input_dataset=%r @Tstate={int64} initial_state=[] @Targuments={} @f='node{name:"argument_0"~op:"Placeholder"~attr{key:"dtype"~value{type:DT_INT64}}}node{name:"argument_1"~op:"Placeholder"~attr{key:"dtype"~value{type:DT_INT64}}}node{name:"result_0"~op:"Identity"~input:"argument_0"~attr{key:"T"~value{type:DT_INT64}}}node{name:"result_1"~op:"Identity"~input:"argument_1"~attr{key:"T"~value{type:DT_INT64}}}' @output_types={int64} @output_shapes={[]} ; <-DatasetToSingleElement dataset=%d @output_types={int64} @output_shapes={[]}
ReduceDataset : r<-RangeDataset start==5 stop==6 step==1 @output_types={int64} @output_shapes={[]} ; input_dataset=%r @Tstate={int64} initial_state=[] @Targuments={} @f='node{name:"argument_0"~op:"Placeholder"~attr{key:"dtype"~value{type:DT_INT64}}}node{name:"argument_1"~op:"Placeholder"~attr{key:"dtype"~value{type:DT_INT64}}}node{name:"result_0"~op:"AddV2"~input:"argument_0"~input:"argument_1"~attr{key:"T"~value{type:DT_INT64}}}' @output_types={int64} @output_shapes={[]}
FlatMapDataset InterleaveDataset ParallelInterleaveDataset ParallelInterleaveDatasetV2 ParallelInterleaveDatasetV3 ParallelInterleaveDatasetV4
  LegacyParallelInterleaveDatasetV2 : r<-RangeDataset start==5 stop==6 step==1 @output_types={int64} @output_shapes={[]} ; d<- input_dataset=%r @Targuments={} cycle_length=(1..3) block_length=(1..3) sloppy==0
  buffer_output_elements==1 prefetch_input_elements==1 num_parallel_calls==1 @f='node{name:"argument_0"~op:"Placeholder"~attr{key:"dtype"~value{type:DT_INT64}}}node{name:"d"~op:"TensorDataset"~input:"argument_0"~attr{key:"Toutput_types"~value{list{type:DT_INT64}}}attr{key:"output_shapes"~value{list{shape{unknown_rank:true}}}}}node{name:"result_0"~op:"Identity"~input:"d"~attr{key:"T"~value{type:DT_VARIANT}}}' @output_types={int64} @output_shapes={[]} ; <-DatasetToSingleElement dataset=%d @output_types={int64} @output_shapes={[]}
GroupByWindowDataset : r<-RangeDataset start==5 stop==6 step==1 @output_types={int64} @output_shapes={[]} ; d<- input_dataset=%r @Tkey_func_other_arguments={} @Treduce_func_other_arguments={}
  @Twindow_size_func_other_arguments={} @key_func='node{name:"argument_0"~op:"Placeholder"~attr{key:"dtype"~value{type:DT_INT64}}}node{name:"result_0"~op:"Identity"~input:"argument_0"~attr{key:"T"~value{type:DT_INT64}}}' @window_size_func='node{name:"argument_0"~op:"Placeholder"~attr{key:"dtype"~value{type:DT_INT64}}}node{name:"result_0"~op:"Identity"~input:"argument_0"~attr{key:"T"~value{type:DT_INT64}}}' @reduce_func='node{name:"argument_0"~op:"Placeholder"~attr{key:"dtype"~value{type:DT_INT64}}}node{name:"argument_1"~op:"Placeholder"~attr{key:"dtype"~value{type:DT_VARIANT}}}node{name:"result_0"~op:"Identity"~input:"argument_1"~attr{key:"T"~value{type:DT_VARIANT}}}' @output_types={int64} @output_shapes={[]} ; <-DatasetToSingleElement dataset=%d @output_types={int64} @output_shapes={[]}
SparseTensorSliceDataset : d<- indices=[1,1]=0 values=[1] dense_shape={1} ; <-DatasetCardinality input_dataset=%d
UniqueDataset : r<-RangeDataset start==5 stop==6 step==1 @output_types={int64} @output_shapes={[]} ; d<- input_dataset=%r
  @output_types={int64} @output_shapes={[]} ; <-DatasetToSingleElement dataset=%d @output_types={int64} @output_shapes={[]}
DatasetToSingleElement : r<-RangeDataset start==5 stop==6 step==1 @output_types={int64} @output_shapes={[]} ; dataset=%r @output_types={int64} @output_shapes={[]}
DatasetCardinality : r<-RangeDataset start==0 stop=(0..9) step==1 @output_types={int64} @output_shapes={[]} ; input_dataset=%r
TextLineDataset TFRecordDataset TFRecordDatasetV2 : d<- filenames={'$D/lines'} compression_type='' buffer_size==0 byte_offsets={} ; <-DatasetCardinality input_dataset=%d
CSVDataset CSVDatasetV2 : d<- filenames={'$D/lines'} compression_type='' buffer_size==0 header==0 field_delim=',' use_quote_delim==1
  na_value='' select_cols={} exclude_cols={} record_defaults=[] @output_types={string} @output_shapes={[]} ; <-DatasetCardinality input_dataset=%d
FixedLengthRecordDataset FixedLengthRecordDatasetV2 : d<- filenames={'$D/bytes'} header_bytes==0 record_bytes=(1..3) footer_bytes==0 buffer_size==0
  compression_type='' ; <-DatasetCardinality input_dataset=%d
OneShotIterator : i<- @dataset_factory='node{name:"c"~op:"Const"~attr{key:"dtype"~value{type:DT_INT64}}attr{key:"value"~value{tensor{dtype:DT_INT64~tensor_shape{}int64_val:7}}}}node{name:"d"~op:"TensorDataset"~input:"c"~attr{key:"Toutput_types"~value{list{type:DT_INT64}}}attr{key:"output_shapes"~value{list{shape{}}}}}node{name:"result_0"~op:"Identity"~input:"d"~attr{key:"T"~value{type:DT_VARIANT}}}' @output_types={int64} @output_shapes={[]} ; <-IteratorGetNext iterator=%i @output_types={int64} @output_shapes={[]}
Iterator : i<- @shared_name='fuzz_numbers' @output_types={float32,int64} @output_shapes={[2],[]}
AnonymousIterator AnonymousIteratorV3 : i<- @output_types={int64} @output_shapes={[]} ; r<-RangeDataset start==5 stop==6 step==1 @output_types={int64} @output_shapes={[]} ; <-_SetIteratorDataset iterator=%i dataset=%r
AnonymousIteratorV2 : i<- @output_types={int64} @output_shapes={[]} ; r<-RangeDataset start==5 stop==6 step==1 @output_types={int64} @output_shapes={[]} ; <-_SetIteratorDataset iterator=%i:0 dataset=%r
_SetIteratorDataset : i<-AnonymousIteratorV3 @output_types={int64} @output_shapes={[]} ; r<-RangeDataset start==5 stop==6 step==1 @output_types={int64} @output_shapes={[]} ; iterator=%i dataset=%r ; <-IteratorGetNext iterator=%i @output_types={int64} @output_shapes={[]}
IteratorGetNextSync : i<-AnonymousIteratorV3 @output_types={int64} @output_shapes={[]} ; r<-RangeDataset start==5 stop==6 step==1 @output_types={int64} @output_shapes={[]} ; <-_SetIteratorDataset iterator=%i dataset=%r ; iterator=%i @output_types={int64} @output_shapes={[]}
IteratorGetNextAsOptional : i<-AnonymousIteratorV3 @output_types={int64} @output_shapes={[]} ; r<-RangeDataset start==5 stop==6 step==1 @output_types={int64} @output_shapes={[]} ; <-_SetIteratorDataset iterator=%i dataset=%r ; o<- iterator=%i @output_types={int64} @output_shapes={[]} ; <-OptionalHasValue optional=%o
IteratorToStringHandle : ~unsteady i<-OneShotIterator @dataset_factory='node{name:"c"~op:"Const"~attr{key:"dtype"~value{type:DT_INT64}}attr{key:"value"~value{tensor{dtype:DT_INT64~tensor_shape{}int64_val:7}}}}node{name:"d"~op:"TensorDataset"~input:"c"~attr{key:"Toutput_types"~value{list{type:DT_INT64}}}attr{key:"output_shapes"~value{list{shape{}}}}}node{name:"result_0"~op:"Identity"~input:"d"~attr{key:"T"~value{type:DT_VARIANT}}}' @output_types={int64} @output_shapes={[]} ; resource_handle=%i
IteratorFromStringHandle IteratorFromStringHandleV2 : i<-OneShotIterator @dataset_factory='node{name:"c"~op:"Const"~attr{key:"dtype"~value{type:DT_INT64}}attr{key:"value"~value{tensor{dtype:DT_INT64~tensor_shape{}int64_val:7}}}}node{name:"d"~op:"TensorDataset"~input:"c"~attr{key:"Toutput_types"~value{list{type:DT_INT64}}}attr{key:"output_shapes"~value{list{shape{}}}}}node{name:"result_0"~op:"Identity"~input:"d"~attr{key:"T"~value{type:DT_VARIANT}}}' @output_types={int64} @output_shapes={[]} ; s<-IteratorToStringHandle resource_handle=%i ; h<- string_handle=%s ;
  <-IteratorGetNext iterator=%h @output_types={int64} @output_shapes={[]}

# -- files
ReadFile : <-WriteFile filename='$D/read' contents=[] ; filename='$D/read'
WriteFile : filename='$D/write' contents=[]
GenerateVocabRemapping : <-WriteFile filename='$D/newer' contents='a^b^c' ; <-WriteFile filename='$D/older' contents='b^a' ;
  new_vocab_file='$D/newer' old_vocab_file='$D/older' @new_vocab_offset=0|1 @num_new_vocab=0|2 @old_vocab_size=-1|1
LoadAndRemapMatrix : <-SaveV2 prefix='$D/matrix' tensor_names={'a'} shape_and_slices={''} @dtypes={float32} tensors=[3,2] ;
  ckpt_path='$D/matrix' old_tensor_name='a' row_remapping={2,0} col_remapping={} initializing_values={} @num_rows=2 @num_cols=2
MatchingFiles : <-WriteFile filename='$D/match.txt' contents=[] ; pattern='$D/mat*'
Save SaveSlices : filename='$D/save' tensor_names=[1]:names @T={float32}|{int32} data=[*S] shapes_and_slices={''}
SaveV2 : prefix='$D/save2' tensor_names=[2]:names shape_and_slices={'',''} @dtypes={float32,int64}|{string,bool}
  tensors=[*S]
Restore RestoreSlice : <-Save filename='$D/old' tensor_names={'a'} @T={float32} data=[*S] ; file_pattern='$D/old'
  tensor_name='a' shape_and_slice='' @dt=float32 @preferred_shard=-1
RestoreV2 : <-SaveV2 prefix='$D/new' tensor_names={'a'} shape_and_slices={''} @dtypes=$dtypes tensors=[*S] ;
  prefix='$D/new' tensor_names={'a'} shape_and_slices={''} @dtypes={float32}|{string}|{int8}
MergeV2Checkpoints : ~unsteady <-SaveV2 prefix='$D/part' tensor_names={'a'} shape_and_slices={''} @dtypes={float32} tensors=[*S] ;
  checkpoint_prefixes={'$D/part'} destination_prefix='$D/merged'
)";

std::string example_record(Rng& rng) {
  proto::Example example;
  const auto add = [&](const char* key) {
    auto* entry = example.mutable_features()->add_feature();
    entry->set_key(key);
    return entry->mutable_value();
  };
  auto* numbers = add("n")->mutable_int64_list();
  for (int64_t n = rng.between(0, 3); n > 0; --n) numbers->add_value(rng.between(-5, 5));
  add("f")->mutable_float_list()->add_value(static_cast<float>(rng.real(-1, 1)));
  add("s")->mutable_bytes_list()->add_value("text");
  return example.SerializeAsString();
}

std::string sequence_record(Rng& rng) {
  proto::SequenceExample example;
  const auto add = [&](const char* key) {
    auto* entry = example.mutable_context()->add_feature();
    entry->set_key(key);
    return entry->mutable_value();
  };
  add("n")->mutable_int64_list()->add_value(rng.between(-5, 5));
  add("f")->mutable_float_list()->add_value(static_cast<float>(rng.real(-1, 1)));
  const int64_t steps = rng.between(0, 3);
  for (const char* key : {"n", "f"}) {
    auto* entry = example.mutable_feature_lists()->add_feature_list();
    entry->set_key(key);
    entry->mutable_value();
    for (int64_t i = 0; i < steps; ++i) {
      auto* feature = entry->mutable_value()->add_feature();
      if (*key == 'n') feature->mutable_int64_list()->add_value(i);
      else feature->mutable_float_list()->add_value(static_cast<float>(i));
    }
  }
  return example.SerializeAsString();
}

std::string bitmap(Rng& rng) {
  const auto width = static_cast<uint32_t>(rng.between(1, 5)), height = static_cast<uint32_t>(rng.between(1, 5));
  const uint32_t row = (width * 3 + 3) / 4 * 4;
  std::string out = "BM";
  const auto put = [&](uint32_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i));
  };
  put(54 + row * height, 4);
  put(0, 4);
  put(54, 4);
  put(40, 4);
  put(width, 4);
  put(height, 4);
  put(1, 2);
  put(24, 2);
  for (const uint32_t value : {0u, row * height, 0u, 0u, 0u, 0u}) put(value, 4);
  for (uint32_t i = 0; i < row * height; ++i) put(static_cast<uint32_t>(rng.between(0, 255)), 1);
  return out;
}

}  // namespace troupe::fuzz
