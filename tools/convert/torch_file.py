"""Tensors of a file that torch.save wrote, read without torch and without running the file.

Such a file is a zip: `NAME/data.pkl` is a pickle that describes the objects, `NAME/data/KEY` are the
bytes of each storage, uncompressed. Unpickling calls what a file names; here a name stands for one
of the stand-ins below, and any other is refused.
"""

import math
import pickle
import zipfile

PICKLE_BYTES_MAX = 64 << 20
TENSORS_MAX = 65536
DIMENSIONS_MAX = 8
# torch's name of a storage: the type's name in safetensors and its bytes.
STORAGES = {"FloatStorage": ("F32", 4), "BFloat16Storage": ("BF16", 2), "HalfStorage": ("F16", 2),
            "DoubleStorage": ("F64", 8), "LongStorage": ("I64", 8), "IntStorage": ("I32", 4),
            "ShortStorage": ("I16", 2), "CharStorage": ("I8", 1), "ByteStorage": ("U8", 1),
            "BoolStorage": ("BOOL", 1)}


class Refused(Exception):
    """What is wrong with which file, and what was expected: one line for a person."""


class Tensor:
    """Where a tensor's numbers lie. Its bytes are read when they are asked for."""

    def __init__(self, dtype, number_bytes, shape, key, offset):
        self.dtype, self.number_bytes, self.shape = dtype, number_bytes, tuple(shape)
        self.key, self.offset = key, offset  # the storage, and how many numbers into it

    @property
    def bytes(self):
        return math.prod(self.shape) * self.number_bytes


class Mapping(dict):
    """Stands for OrderedDict. What a module hangs on its state (_metadata) is dropped."""

    def __setstate__(self, state):
        pass


class StorageType:
    def __init__(self, name):
        self.dtype, self.number_bytes = STORAGES[name]


class _Unpickler(pickle.Unpickler):
    def __init__(self, file, path):
        super().__init__(file, encoding="utf-8")
        self._path, self._tensors = path, 0

    def find_class(self, module, name):
        if module in ("torch", "torch.storage") and name in STORAGES:
            return StorageType(name)
        known = {("collections", "OrderedDict"): Mapping, ("torch", "Size"): tuple,
                 ("torch._utils", "_rebuild_tensor_v2"): self._tensor,
                 ("torch._utils", "_rebuild_parameter"): lambda tensor, *_: tensor}
        if (module, name) not in known:
            raise Refused(f"{self._path}: the pickle names {module}.{name}: expected tensors and "
                          "plain containers alone; save the weights by themselves")
        return known[module, name]

    def persistent_load(self, pid):
        if not (isinstance(pid, tuple) and len(pid) == 5 and pid[0] == "storage" and
                isinstance(pid[1], StorageType) and isinstance(pid[2], str)):
            raise Refused(f"{self._path}: a storage is described as {str(pid)[:80]}, expected "
                          "(storage, type, key, place, size)")
        return pid[1], pid[2]

    def _tensor(self, storage, offset, shape, stride, *_):
        self._tensors += 1
        if self._tensors > TENSORS_MAX:
            raise Refused(f"{self._path}: expected at most {TENSORS_MAX} tensors")
        sizes = list(shape) + list(stride) + [offset]
        if not all(isinstance(n, int) and n >= 0 for n in sizes) or len(shape) != len(stride) or \
                len(shape) > DIMENSIONS_MAX:
            raise Refused(f"{self._path}: a tensor of shape {shape} and stride {stride}: expected "
                          f"at most {DIMENSIONS_MAX} sizes")
        step = 1
        for size, one in reversed(list(zip(shape, stride))):
            if size != 1 and one != step:
                raise Refused(f"{self._path}: a tensor of shape {tuple(shape)} has stride "
                              f"{tuple(stride)}: expected numbers one after the other")
            step *= size
        kind, key = storage
        return Tensor(kind.dtype, kind.number_bytes, shape, key, offset)


class TorchFile:
    """The tensors of a checkpoint by name, from its `model` or `state_dict` where it has one."""

    def __init__(self, path):
        self.path = path
        try:
            self._zip = zipfile.ZipFile(path)
        except (OSError, zipfile.BadZipFile) as error:
            raise Refused(f"{path}: {error}: expected a zip, as torch 1.6 and newer save; is the "
                          "file whole?") from None
        self._entries = {info.filename: info for info in self._zip.infolist()}
        pickles = [name for name in self._entries if name.endswith("/data.pkl")]
        if len(pickles) != 1:
            raise Refused(f"{path}: expected one data.pkl, found {len(pickles)}: no file of "
                          "torch.save")
        self._folder = pickles[0].removesuffix("data.pkl")
        order = self._entries.get(self._folder + "byteorder")
        if order is not None and self._read(order, 16).strip() != b"little":
            raise Refused(f"{path}: expected little-endian numbers")
        self.tensors = self._state(self._unpickle(self._entries[pickles[0]]))
        for name, tensor in self.tensors.items():
            self._check(name, tensor)

    def _read(self, info, bytes_max):
        if info.file_size > bytes_max:
            raise Refused(f"{self.path}: {info.filename}: expected at most {bytes_max} bytes, found "
                          f"{info.file_size}")
        try:
            return self._zip.read(info)
        except (OSError, EOFError, zipfile.BadZipFile) as error:
            raise Refused(f"{self.path}: {info.filename}: {error}: is the file whole?") from None

    def _unpickle(self, info):
        with self._zip.open(info) as file:
            if info.file_size > PICKLE_BYTES_MAX:
                raise Refused(f"{self.path}: data.pkl: expected at most {PICKLE_BYTES_MAX} bytes, "
                              f"found {info.file_size}")
            try:
                return _Unpickler(file, self.path).load()
            except Refused:
                raise
            except Exception as error:  # a damaged pickle fails in any way
                raise Refused(f"{self.path}: data.pkl: {type(error).__name__}: {error}: no pickle "
                              "of tensors") from None

    def _state(self, root):
        for key in ("model", "state_dict"):
            if isinstance(root, dict) and isinstance(root.get(key), dict):
                root = root[key]
        tensors = {}
        for name, value in (root.items() if isinstance(root, dict) else ()):
            if not isinstance(name, str) or not isinstance(value, Tensor):
                raise Refused(f"{self.path}: {str(name)[:80]}: expected a tensor by name, found "
                              f"{type(value).__name__}")
            for prefix in ("_forward_module.", "module.", "_orig_mod."):
                name = name.removeprefix(prefix)
            if name in tensors:
                raise Refused(f"{self.path}: {name}: stands twice")
            tensors[name] = value
        if not tensors:
            raise Refused(f"{self.path}: expected tensors by name, found none")
        return tensors

    def _check(self, name, tensor):
        info = self._entries.get(f"{self._folder}data/{tensor.key}")
        if info is None:
            raise Refused(f"{self.path}: {name}: its storage {tensor.key} is missing")
        end = tensor.offset * tensor.number_bytes + tensor.bytes
        if end > info.file_size:
            raise Refused(f"{self.path}: {name}: expected {end} bytes in storage {tensor.key}, "
                          f"found {info.file_size}")

    def same_numbers(self, one, other):
        return self.read(one) == self.read(other)

    def read(self, name):
        """The bytes of a tensor; zip's checksum of its storage is checked."""
        tensor = self.tensors[name]
        info = self._entries[f"{self._folder}data/{tensor.key}"]
        whole = self._read(info, info.file_size)
        start = tensor.offset * tensor.number_bytes
        return whole[start:start + tensor.bytes]
