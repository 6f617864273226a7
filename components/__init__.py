"""The stages as KFP components, one file per stage; importable as `laurel.components`.

A component is a thin typed wrapper: its body calls the stage's `run`, and runs in an image that holds this
package and kfp without its dependencies. The components contain no logic of their own and do not define the order of
stages.

Unless a component says otherwise, an argument with the name of a section of params.yaml is that section; all random
numbers derive from `seed`; `code_version` is the commit or version of the code, and cached results of other versions
are not used; the inputs `trajectories`, `captions`, `preferences`, `model` and `agents` are the outputs of collect,
caption, annotate, train-reward and merge-agents.
"""

from laurel import __version__

IMAGE = f"laurel-python:{__version__}"
"""Default image of the components. KFP's process runner requires "python" in its name."""
