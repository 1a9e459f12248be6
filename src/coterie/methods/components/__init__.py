"""Components that methods are built from: random walks, ensemble selection, prototypes, distillation, graph weights.

A component knows no method. A method's file reads like its paper's algorithm: parameters, `setup`, `round`, `serve`.
The two mixins (`expert_training`, `model_bench`) name the parameters that they expect a method to have.
"""
