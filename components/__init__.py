"""The stages as KFP components, one file a stage; importable as `laurel.components`.

A component is a thin typed wrapper: its body calls the stage's `run`, and runs in an image that holds this
package and kfp without its dependencies. No work is done here, and nothing here knows the order of stages.
"""

from laurel import __version__

IMAGE = f"laurel-python:{__version__}"
"""Image of the components unless another is chosen. KFP's process runner wants "python" in its name."""
