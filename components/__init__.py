"""The stages as KFP components, one file a stage; importable as `laurel.components`.

A component is a thin typed wrapper: its body calls the stage's `run`, and runs in an image that holds this
package and kfp without its dependencies. No work is done here, and nothing here knows the order of stages.

What arguments mean, where a component does not say otherwise: those that share a name with a section of params.yaml
are that section; all random numbers derive from `seed`; `code_version` is the commit or version of the code, and a
cached result of another one is not used; the inputs `trajectories`, `captions`, `preferences`, `model` and `agents` are
the outputs of collect, caption, annotate, train-reward and merge-agents.
"""

from laurel import __version__

IMAGE = f"laurel-python:{__version__}"
"""Image of the components unless another is chosen. KFP's process runner wants "python" in its name."""
