# SPDX-License-Identifier: Apache-2.0
"""The optimizers of tf.compat.v1.train, by name: functions of a global step."""
from make import tf1

OPTIMIZERS = {
    "sgd": lambda step: tf1.train.GradientDescentOptimizer(0.5),
    "momentum": lambda step: tf1.train.MomentumOptimizer(0.2, 0.9),
    "nesterov": lambda step: tf1.train.MomentumOptimizer(0.2, 0.9, use_nesterov=True),
    "adam": lambda step: tf1.train.AdamOptimizer(0.05),
    "adagrad": lambda step: tf1.train.AdagradOptimizer(0.3),
    "adagrad_da": lambda step: tf1.train.AdagradDAOptimizer(0.5, step, l1_regularization_strength=0.001),
    "adadelta": lambda step: tf1.train.AdadeltaOptimizer(1.0, epsilon=1e-4),
    "rmsprop": lambda step: tf1.train.RMSPropOptimizer(0.02, momentum=0.5),
    "rmsprop_centered": lambda step: tf1.train.RMSPropOptimizer(0.02, centered=True),
    "ftrl": lambda step: tf1.train.FtrlOptimizer(0.5, l1_regularization_strength=0.001,
                                                 l2_regularization_strength=0.01),
    "ftrl_shrinkage": lambda step: tf1.train.FtrlOptimizer(0.5, l2_shrinkage_regularization_strength=0.01),
    "proximal_sgd": lambda step: tf1.train.ProximalGradientDescentOptimizer(0.5, l1_regularization_strength=0.001),
    "proximal_adagrad": lambda step: tf1.train.ProximalAdagradOptimizer(0.3, l2_regularization_strength=0.01),
}
