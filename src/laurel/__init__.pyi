from laurel.library.agent import load_agent as load_agent
from laurel.library.judging import annotate as annotate
from laurel.library.reward import load_reward as load_reward
from laurel.library.tables import read as read
from laurel.library.text_environment import text_environment as text_environment
from laurel.library.vec_env import RewardVecEnv as RewardVecEnv
from laurel.library.vector import RewardVectorWrapper as RewardVectorWrapper
from laurel.library.wrapper import RewardWrapper as RewardWrapper

__version__: str
