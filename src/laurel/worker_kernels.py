"""Set a worker's matrix kernels; the server that workers are forked from imports this module before NumPy.

Setting the variable in the process that starts the server would be a race: another thread may just then import a
library with its own BLAS, which would take these kernels, and equal runs would report different ones.
"""

from laurel.machine import set_common_kernels

set_common_kernels()
