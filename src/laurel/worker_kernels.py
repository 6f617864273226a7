"""Set a worker's matrix kernels; the server that workers are forked from imports this module before NumPy.

The process that starts the server keeps its own environment, even for a moment: one of its threads may be importing a
library with another BLAS, which would take those kernels, and two equal runs would name different ones.
"""

from laurel.machine import set_common_kernels

set_common_kernels()
