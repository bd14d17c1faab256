"""Is there no screen, no OpenGL, or no environment of this name: did plots, windows, videos or a simulator fail?"""

from __future__ import annotations

from mgpu.check import Fix
from mgpu.signature import Case, Row, signatures

from ._circumstances import said

# fmt: off
_HEADLESS = Case(
    said(r"Rebuild the library with Windows, GTK"),
    "this OpenCV has no windows: the installed build is one without them (opencv-python-headless)",
    "cv2.imshow(), waitKey() and the other functions for windows are not in that build. It is often installed by "
    "another package, and hides opencv-python if both are there.",
    (Fix("Write to files instead of windows.", ("cv2.imwrite('out.png', image)  # not: cv2.imshow",)),
     Fix("On a machine with a screen, install the build with windows alone.",
         ("pip uninstall -y opencv-python opencv-python-headless opencv-contrib-python", "pip install opencv-python"))),
    "cv2.error: OpenCV(4.8.0) /io/window.cpp:1272: error: (-2:Unspecified error) The function is not implemented. "
    "Rebuild the library with Windows, GTK+ 2.x or Cocoa support. in function 'cvShowImage'\n",
    "https://pypi.org/project/opencv-python/")
_QT_OF_DESKTOP = Case(
    said(r"[Cc]ould not load the Qt platform plugin \"(?:cocoa|windows)\""),
    "Qt cannot load its plugin for this system: probably two packages bring different releases of Qt",
    "The plugin was found, and belongs to another Qt than the one that is loaded: opencv-python, PyQt, PySide and "
    "matplotlib's backend each bring one, and so does conda.",
    (Fix("Keep one of them. In programs without windows, use the OpenCV build without Qt.",
         ("pip list | grep -iE 'qt|pyside|opencv'", "pip uninstall -y opencv-python",
          "pip install opencv-python-headless")),
     Fix("See which plugin is loaded.", ("QT_DEBUG_PLUGINS=1 python train.py",))),
    'qt.qpa.plugin: Could not load the Qt platform plugin "cocoa" in "" even though it was found.\n',
    "https://doc.qt.io/qt-6/deployment-plugins.html")
ROWS = (
    Row("log_no_display", "root", "script",
        r"no display name and no \$DISPLAY|could not connect to display|[Cc]ould not load the Qt platform plugin|"
        r"[Nn]o Qt platform plugin could be initialized|NoSuchDisplayException|No available video device|"
        r"The function is not implemented\. Rebuild the library with Windows, GTK|"
        r"(?:[Cc]an(?:no|')t|[Ff]ailed to|[Uu]nable to|couldn't) (?:open|connect to) (?:X server|(?:X11? )?display)|"
        r"X11: The DISPLAY environment variable is missing",
        ("_tkinter.TclError: no display name and no $DISPLAY environment variable",
         "qt.qpa.xcb: could not connect to display ",
         "cv2.error: OpenCV(4.8.0) /io/window.cpp:1272: error: (-2:Unspecified error) The function is not implemented. "
         "Rebuild the library with Windows, GTK+ 2.x or Cocoa support. in function 'cvShowImage'",
         "pyglet.display.xlib.NoSuchDisplayException: Cannot connect to None: Cannot open display",
         "This application failed to start because no Qt platform plugin could be initialized.",
         "pygame.error: No available video device"),
        "the program opens a window, and cannot: no screen, or a Qt or OpenCV that does not fit",
        "plt.show(), cv2.imshow() and a simulator's viewer need a display. Compute nodes, containers and ssh sessions "
        "without -X have none, and opencv-python-headless has no windows at all.",
        (Fix("Write to files instead of windows.",
             ("export MPLBACKEND=Agg", "plt.savefig('plot.png')  # not: plt.show()",
              "cv2.imwrite('out.png', image)  # not: cv2.imshow")),
         Fix("If the program must have a display, give it a virtual one.", ("xvfb-run -a python train.py",)),
         Fix("If the machine has a screen: opencv-python and PyQt bring different Qt plugins.",
             ("pip uninstall -y opencv-python", "pip install opencv-python-headless"))),
        "https://matplotlib.org/stable/users/explain/figure/backends.html", cases=(_HEADLESS, _QT_OF_DESKTOP)),
    Row("log_no_rendering", "root", "script",
        r"gladLoadGL error|OpenGL platform library has not been loaded|"
        r"Cannot initialize a EGL device display|GLFW Error: (?:Failed to|X11)|"
        r"[Ff]ailed to (?:initialize|create) (?:OpenGL|GLEW|an? (?:OpenGL|EGL) context)|ERROR: GLEW initalization "
        r"error|"
        r"'NoneType' object has no attribute 'eglQueryString'",
        ("mujoco.FatalError: gladLoadGL error",
         "mujoco.FatalError: an OpenGL platform library has not been loaded into this process",
         "ImportError: Cannot initialize a EGL device display. This likely means that your EGL driver does not support "
         "the PLATFORM_DEVICE extension, which is required for creating a headless rendering context.",
         "[Open3D WARNING] GLFW Error: Failed to create window",
         "AttributeError: 'NoneType' object has no attribute 'eglQueryString'"),
        "a renderer (MuJoCo, dm_control, pyrender, Open3D) cannot open OpenGL here",
        "Without a screen it needs EGL, which renders on the GPU, or OSMesa, which renders on the CPU. Containers have "
        "EGL only with the graphics capability of the driver, and some nodes lack its files.",
        (Fix("Choose a backend without a screen, before the simulator is imported.",
             ("export MUJOCO_GL=egl PYOPENGL_PLATFORM=egl", "export MUJOCO_GL=osmesa PYOPENGL_PLATFORM=osmesa",
              "docker run --gpus all -e NVIDIA_DRIVER_CAPABILITIES=all IMAGE")),
         Fix("If its files are missing, install them.", ("sudo apt-get install -y libegl1 libgl1 libosmesa6",))),
        "https://mujoco.readthedocs.io/en/stable/programming/index.html#using-opengl"),
    Row("log_environment_unknown", "root", "script",
        r"(?<!Environment)(?:NameNotFound|NamespaceNotFound|VersionNotFound|UnregisteredEnv|DeprecatedEnv)\w*: "
        r"(?P<what>.+)",
        ("gymnasium.error.NameNotFound: Environment `HalfCheetahX` doesn't exist.",
         "gym.error.DeprecatedEnv: Environment version v0 for `CartPole` is deprecated. Please use `CartPole-v1` "
         "instead.",
         "gymnasium.error.NamespaceNotFound: Namespace ALE not found. Have you installed the proper package for ALE?",
         "gym.error.UnregisteredEnv: No registered env with id: CarRacing-v0"),
        "the environment is not registered: {what}",
        "The package that registers it is not installed or not imported (ale_py, minigrid, robosuite, the project's "
        "own), "
        "the version at the end of the name was removed (-v2 of MuJoCo needs mujoco-py), or gym and gymnasium are "
        "mixed.",
        Fix("Import the package before make(), and list what is registered.",
            ("python -c \"import gymnasium as g; print([x for x in g.registry if 'Cheetah' in x])\"",
             "import ale_py; gymnasium.register_envs(ale_py)", "pip install 'gymnasium[mujoco]'")),
        "https://gymnasium.farama.org/api/registry/", summary="The environment is not registered."),
    Row("log_isaacgym_after_torch", "root", "script", r"PyTorch was imported before isaacgym modules",
        ("ImportError: PyTorch was imported before isaacgym modules.  Please import torch after isaacgym modules.",),
        "torch was imported before isaacgym",
        "Both bring libraries of CUDA and PhysX; isaacgym must load its own first. Another import can bring torch "
        "along.",
        Fix("Import isaacgym in the first line of the script that is started.", ("import isaacgym  # before torch",)),
        "https://github.com/isaac-sim/IsaacGymEnvs"),
)
# fmt: on

SIGNATURES = signatures(__name__, ROWS)
