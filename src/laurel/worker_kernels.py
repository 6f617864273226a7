"""Set a worker's matrix kernels; the server that workers are forked from imports this module before NumPy.

So the environment of the process that starts the server never changes. It may have a thread that just then imports a
library with another BLAS, which would take those kernels, and two equal runs would name different ones.
"""

from laurel.machine import set_common_kernels

set_common_kernels()
