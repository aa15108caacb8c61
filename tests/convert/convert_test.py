"""tools/convert: a file of torch itself, small random checkpoints of both layouts, and every way in
which a file can be wrong, partial or hostile refused by name. Needs Python alone.

    python3 tests/convert/convert_test.py
"""

import collections
import hashlib
import json
import os
import pathlib
import pickle
import random
import struct
import subprocess
import sys
import tempfile
import types
import unittest
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
CONVERT = ROOT / "tools" / "convert" / "convert.py"
GOLDEN = ROOT / "tests" / "golden" / "convert"
sys.path.insert(0, str(CONVERT.parent))
from torch_file import Refused, TorchFile  # noqa: E402


class Numbers:
    """A tensor to be saved: BF16 unless the numbers are given as bytes of another type."""

    def __init__(self, shape, seed, dtype="BFloat16Storage", data=None):
        size = {"FloatStorage": 4, "BFloat16Storage": 2, "HalfStorage": 2, "LongStorage": 8}[dtype]
        count = 1
        for each in shape:
            count *= each
        rng = random.Random(seed)
        self.shape, self.dtype = shape, dtype
        # Sign, an exponent near that of 1, any mantissa: finite in every type.
        number = {2: lambda: rng.choice([0x3E00, 0xBE00]) | rng.randrange(0x200),
                  4: lambda: rng.choice([0x3E000000, 0xBE000000]) | rng.randrange(1 << 24),
                  8: lambda: rng.randrange(1000)}[size]
        self.data = data or b"".join(number().to_bytes(size, "little") for _ in range(count))


def save(path, root, tensors_as=None, byteorder=b"little"):
    """Writes what torch.save writes: same zip, same names in the pickle."""
    storages = []
    names = {"torch": types.ModuleType("torch"), "torch._utils": types.ModuleType("torch._utils")}

    def rebuild(*_):
        raise AssertionError
    rebuild.__module__, rebuild.__qualname__ = "torch._utils", "_rebuild_tensor_v2"
    names["torch._utils"]._rebuild_tensor_v2 = rebuild
    kinds = {}
    for kind in ("FloatStorage", "BFloat16Storage", "HalfStorage", "LongStorage"):
        kinds[kind] = type(kind, (), {"__module__": "torch"})
        setattr(names["torch"], kind, kinds[kind])

    class Storage:
        def __init__(self, numbers):
            self.numbers = numbers

    class Reduced:
        def __init__(self, numbers):
            self.numbers = numbers

        def __reduce__(self):
            stride, step = [], 1
            for size in reversed(self.numbers.shape):
                stride.insert(0, step)
                step *= size
            return rebuild, (Storage(self.numbers), 0, tuple(self.numbers.shape), tuple(stride),
                             False, collections.OrderedDict())

    class Pickler(pickle.Pickler):
        def persistent_id(self, value):
            if not isinstance(value, Storage):
                return None
            storages.append(value.numbers)
            return ("storage", kinds[value.numbers.dtype], str(len(storages) - 1), "cpu",
                    len(value.numbers.data))

    def reduced(value):
        if isinstance(value, Numbers):
            return Reduced(value)
        if isinstance(value, dict):
            return type(value)((k, reduced(v)) for k, v in value.items())
        return value

    before = {name: sys.modules.get(name) for name in names}
    sys.modules.update(names)
    try:
        with tempfile.TemporaryFile() as buffer:
            Pickler(buffer, protocol=2).dump(reduced(root))
            buffer.seek(0)
            text = buffer.read()
    finally:
        for name, module in before.items():
            sys.modules.pop(name)
            if module is not None:
                sys.modules[name] = module
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("x/data.pkl", text)
        file.writestr("x/byteorder", byteorder)
        for index, numbers in enumerate(storages):
            file.writestr(f"x/data/{index}", numbers.data)


def hla_tensors(routed=True, layers=2, D=10, F=14, vocab=20, H=2, K=6, V=9):
    tensors, seed = {}, iter(range(10000))
    add = lambda name, *shape: tensors.__setitem__(name, Numbers(shape, next(seed)))
    add("transformer.wte.weight", vocab, D)
    tensors["lm_head.weight"] = tensors["transformer.wte.weight"]
    add("transformer.ln_f.weight", D)
    for layer in range(layers):
        at = f"transformer.h.{layer}."
        for name, shape in {"norm_1.weight": (D,), "norm_2.weight": (D,),
                            "mlp.gate_proj.weight": (2 * F, D), "mlp.down_proj.weight": (D, F),
                            "attn.q_proj.weight": (H * K, D), "attn.k_proj.weight": (H * K, D),
                            "attn.v_proj.weight": (H * V, D), "attn.g_proj.weight": (H * V, D),
                            "attn.a_proj.weight": (H, D), "attn.b_proj.weight": (H, D),
                            "attn.o_proj.weight": (D, H * V), "attn.A_log": (H,),
                            "attn.dt_bias": (H,), "attn.D": (H,),
                            "attn.o_norm.weight": (V,)}.items():
            add(at + name, *shape)
        for part in ("q", "pool_attn_k", "pool_attn_v", "pool_attn_o") if routed else ():
            add(f"{at}attn.route_{part}_proj.weight", H, K, K)
    return tensors


MHLA_CONFIG = json.loads((ROOT / "tests/golden/models/mhla_lm/config.json").read_text())


def mhla_tensors(D=32, F=40, vocab=96, H=2, layers=2):
    tensors, seed = {}, iter(range(10000))
    add = lambda name, *shape: tensors.__setitem__(name, Numbers(shape, next(seed), "FloatStorage"))
    add("model.embeddings.weight", vocab, D)
    add("model.norm.weight", D)
    for layer in range(layers):
        at = f"model.layers.{layer}."
        for name, shape in {"attn_norm.weight": (D,), "mlp_norm.weight": (D,),
                            "attn.q_proj.weight": (D // 2, D), "attn.k_proj.weight": (D // 2, D),
                            "attn.v_proj.weight": (D, D), "attn.g_proj.weight": (D, D),
                            "attn.o_proj.weight": (D, D),
                            "attn.g_norm_swish_gate.weight": (D // H,),
                            "attn.mixing_matrix": (32, 32, 1, 1, 1, 1),
                            "mlp.gate_proj.weight": (F, D), "mlp.up_proj.weight": (F, D),
                            "mlp.down_proj.weight": (D, F)}.items():
            add(at + name, *shape)
    return tensors


def read_safetensors(path):
    whole = path.read_bytes()
    size, = struct.unpack("<Q", whole[:8])
    header = json.loads(whole[8:8 + size])
    return {name: (entry["dtype"], entry["shape"],
                   whole[8 + size:][slice(*entry["data_offsets"])])
            for name, entry in header.items() if name != "__metadata__"}


class ConvertTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.source = self.folder / "model.pth"
        self.out = self.folder / "out"

    def run_convert(self, layout, *more):
        return subprocess.run([sys.executable, str(CONVERT), layout, str(self.source),
                               str(self.out), *map(str, more)], capture_output=True, text=True,
                              check=False)

    def assertConverted(self, layout, tensors, *more):
        done = self.run_convert(layout, *more)
        self.assertEqual(done.returncode, 0, done.stderr)
        written = read_safetensors(self.out / "model.safetensors")
        for name, (dtype, shape, numbers) in written.items():
            self.assertEqual(numbers, tensors[name].data, name)
            self.assertEqual(tuple(shape), tuple(tensors[name].shape), name)
        sums = dict(reversed(line.split("  ")) for line in
                    (self.out / "SHA256SUMS").read_text().splitlines())
        for name, digest in sums.items():
            self.assertEqual(hashlib.sha256((self.out / name).read_bytes()).hexdigest(), digest)
        self.assertIn("config.json", sums)
        self.assertServerReads()
        return written, json.loads((self.out / "config.json").read_text()), done.stdout

    def assertServerReads(self):
        """Where the build's own program is named, it must take the folder as it is."""
        if "MNEME" in os.environ and not (self.out / "tokenizer.json").exists():
            done = subprocess.run([os.environ["MNEME"], "model", "inspect", str(self.out)],
                                  capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)

    def assertRefused(self, message, layout="hla", *more):
        done = self.run_convert(layout, *more)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(message, done.stderr)
        self.assertNotIn("Traceback", done.stderr)
        self.assertFalse((self.out / "model.safetensors").exists(), "half a folder is left")
        return done.stderr

    def test_an_hla_checkpoint_keeps_its_numbers(self):
        tensors = hla_tensors()
        save(self.source, {"model": collections.OrderedDict(
            ("_forward_module." + name, tensor) for name, tensor in tensors.items()), "step": 7})
        written, config, said = self.assertConverted("hla", tensors, "--theta", 0.1)
        self.assertEqual(set(tensors) - set(written),
                         {"lm_head.weight", "transformer.h.0.attn.D", "transformer.h.1.attn.D"})
        self.assertEqual((config["n_embd"], config["n_layer"], config["gated_delta_head_dim"],
                          config["gated_delta_expand_v"], config["route_theta"]),
                         (10, 2, 6, 1.5, 0.1))
        self.assertEqual(config["gated_delta_variant"], "gla_gdn")
        self.assertIn("no tokenizer", said)

    def test_the_plain_twin_has_no_router(self):
        tensors = hla_tensors(routed=False)
        save(self.source, tensors)
        _, config, _ = self.assertConverted("hla", tensors)
        self.assertEqual(config["gated_delta_variant"], "gdn")
        self.out = self.folder / "other"
        self.assertRefused("expected a router", "hla-1.3b")

    def test_an_mhla_checkpoint_needs_its_configuration(self):
        tensors = mhla_tensors()
        save(self.source, {"state_dict": tensors})
        self.assertRefused("--config", "mhla")
        config = self.folder / "config.json"
        config.write_text(json.dumps(MHLA_CONFIG))
        written, found, _ = self.assertConverted("mhla", tensors, "--config", config)
        self.assertEqual(set(written), set(tensors))
        self.assertEqual(found, MHLA_CONFIG)
        self.out = self.folder / "other"
        self.assertRefused("hidden_size: expected 1024, as released, found 32", "mhla-340m",
                           "--config", config)

    def test_the_tokenizer_comes_along(self):
        save(self.source, hla_tensors())
        self.assertRefused("no tokenizer.json", "hla", "--tokenizer", self.folder)
        (self.folder / "tokenizer.json").write_text("{}")
        self.assertConverted("hla", hla_tensors(), "--tokenizer", self.folder)
        self.assertEqual((self.out / "tokenizer.json").read_text(), "{}")

    def test_a_file_that_is_another_is_refused_by_its_hash(self):
        save(self.source, hla_tensors())
        digest = hashlib.sha256(self.source.read_bytes()).hexdigest()
        self.assertRefused(f"expected SHA-256 {'0' * 64}, found {digest}", "hla", "--sha256",
                           "0" * 64)
        self.assertConverted("hla", hla_tensors(), "--sha256", digest.upper())

    def test_a_partial_file_is_refused(self):
        save(self.source, hla_tensors())
        whole = self.source.read_bytes()
        for part in (0, 10, len(whole) // 2, len(whole) - 1):
            self.source.write_bytes(whole[:part])
            self.assertRefused("is the file whole?")
        damaged = bytearray(whole)
        at = whole.index(hla_tensors()["transformer.h.1.attn.q_proj.weight"].data)
        damaged[at] ^= 1
        self.source.write_bytes(damaged)
        self.assertRefused("Bad CRC-32")
        self.assertFalse(list(self.out.glob("*.partial")) if self.out.exists() else [])

    def test_wrong_tensors_are_refused_by_name(self):
        def refused(message, **changes):
            tensors = hla_tensors()
            for name, tensor in changes.items():
                name = name.replace("__", ".")
                if tensor is None:
                    del tensors[name]
                else:
                    tensors[name] = tensor
            save(self.source, tensors)
            self.assertRefused(message)
        refused("transformer.h.1.attn.o_norm.weight: expected this tensor, found none",
                transformer__h__1__attn__o_norm__weight=None)
        refused("transformer.h.1.norm_2.weight: expected shape [10], found [11]",
                transformer__h__1__norm_2__weight=Numbers((11,), 1))
        refused("transformer.h.1.norm_2.weight: expected F32, BF16 or F16, found I64",
                transformer__h__1__norm_2__weight=Numbers((10,), 1, "LongStorage"))
        refused("transformer.h.0.attn.q_conv1d.weight: expected only tensors of this layout",
                transformer__h__0__attn__q_conv1d__weight=Numbers((12, 1, 4), 1))
        refused("lm_head.weight: expected the numbers of transformer.wte.weight",
                lm_head__weight=Numbers((20, 10), 99))
        infinite = Numbers((10,), 1, data=b"\x80\x3f" * 9 + b"\x80\x7f")
        refused("transformer.ln_f.weight: expected finite numbers, found one that is not at 9",
                transformer__ln_f__weight=infinite)
        large = Numbers((10,), 1, data=b"\x80\x3f" * 9 + b"\x7f\x7f")  # the largest there is
        tensors = hla_tensors()
        tensors["transformer.ln_f.weight"] = large
        save(self.source, tensors)
        self.assertConverted("hla", tensors)
        self.out = self.folder / "released"
        self.assertRefused("n_embd: expected 2048, as released, found 10", "hla-1.3b")

    def test_a_pickle_that_names_anything_else_is_refused_and_not_run(self):
        mark = self.folder / "was_run"

        class Hostile:
            def __reduce__(self):
                return os.mkdir, (str(mark),)
        for root, named in ((Hostile(), "posix.mkdir"), ({"model": Hostile()}, "posix.mkdir"),
                            ({"a": types.SimpleNamespace(x=1)}, "types.SimpleNamespace")):
            save(self.source, root)
            self.assertIn("expected tensors and plain containers alone",
                          self.assertRefused(f"the pickle names {named}"))
        self.assertFalse(mark.exists())
        for text in (b"cos\nsystem\n(S'touch x'\ntR.", b"cbuiltins\neval\n.", b"nonsense", b""):
            with zipfile.ZipFile(self.source, "w") as file:
                file.writestr("x/data.pkl", text)
            self.assertRefused("data.pkl" if text in (b"nonsense", b"") else "the pickle names")

    def test_other_files_are_refused(self):
        self.assertRefused("no such file")
        with zipfile.ZipFile(self.source, "w") as file:
            file.writestr("readme", "no weights")
        self.assertRefused("expected one data.pkl, found 0")
        save(self.source, hla_tensors(), byteorder=b"big")
        self.assertRefused("expected little-endian numbers")
        save(self.source, {"weight": 5})
        self.assertRefused("weight: expected a tensor by name, found int")
        save(self.source, {})
        self.assertRefused("expected tensors by name, found none")
        self.out.mkdir()
        (self.out / "mine").write_text("")
        self.assertRefused("expected a new or an empty folder")

    def test_a_storage_that_is_too_short_is_refused(self):
        tensors = hla_tensors()
        tensors["transformer.ln_f.weight"].data = b"\x80\x3f" * 9
        save(self.source, tensors)
        self.assertRefused("transformer.ln_f.weight: expected 20 bytes in storage")

    def test_reads_what_torch_itself_saved(self):
        expected = json.loads((GOLDEN / "torch.json").read_text())
        file = TorchFile(GOLDEN / "torch.pth")
        self.assertEqual(set(file.tensors), set(expected))
        for name, entry in expected.items():
            tensor = file.tensors[name]
            self.assertEqual((tensor.dtype, list(tensor.shape)), (entry["dtype"], entry["shape"]))
            self.assertEqual(hashlib.sha256(file.read(name)).hexdigest(), entry["sha256"], name)
        with self.assertRaisesRegex(Refused, "expected numbers one after the other"):
            TorchFile(GOLDEN / "transposed.pth")


if __name__ == "__main__":
    unittest.main()
