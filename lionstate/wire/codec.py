"""JSON for the parameters and the results of functions, by their signatures."""

from __future__ import annotations

import functools
import inspect
import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import GenericAlias, SimpleNamespace
from typing import Any, Unpack, get_args, get_origin, get_type_hints

import msgspec

from lionstate.errors import InvalidInputError, WireError
from lionstate.wire.doubled import refuse_doubled_keys
from lionstate.wire.stored import decode_leniently, write_json

__all__ = ["Codec", "canonical", "codec_of", "decode_answer", "decode_call", "encode", "encode_result", "sentence"]


def _encode_special(value: object) -> msgspec.Raw:
    """A value that is encoded already goes out as it is."""
    text = getattr(value, "__json_text__", None)
    if not isinstance(text, str):
        raise TypeError(type(value).__name__)
    return msgspec.Raw(text.encode())


_encoder = msgspec.json.Encoder(enc_hook=_encode_special)
_sorted_encoder = msgspec.json.Encoder(enc_hook=_encode_special, order="sorted")
# What msgspec says, without what it quotes: only types and names of ours reach the caller.
_EXPECTED = re.compile(r"Expected `([^`]*)`, got `([^`]*)`(?: - at `\$\.?([A-Za-z0-9_]*))?")
_FIELD = re.compile(r"(missing required|contains unknown) field `([^`]*)`(?: - at `\$\.?([A-Za-z0-9_]*))?")
_PATH = re.compile(r"at `\$\.([A-Za-z0-9_]+)")
_NAME_LIMIT = 64
_PLAIN = frozenset({str, int, bool, type(None), bytes})


def encode(obj: object, encoder: msgspec.json.Encoder = _encoder) -> bytes:
    """Encode a value that a caller gives as JSON; a key that is no text as ``json`` writes it.

    Raises:
        InvalidInputError: It holds NaN, an infinity, a lone surrogate, a cycle, a number of more digits than Python
            writes, or an unsupported type.
    """
    try:
        try:
            text = encoder.encode(obj)
        except TypeError:
            # Keys of more than one type, or of one that the fast encoder has not.
            _refuse_non_finite(obj)
            is_sorted = encoder is _sorted_encoder
            return write_json(obj, encoder.encode, is_sorted=is_sorted, is_strict=True).encode()
        if b"null" in text:
            _refuse_non_finite(obj)
        return text
    except UnicodeEncodeError as exc:
        raise InvalidInputError("text holds a lone surrogate, which JSON cannot carry") from exc
    except RecursionError as exc:
        raise InvalidInputError("the value is nested too deeply") from exc
    except InvalidInputError:
        raise
    except (TypeError, OverflowError) as exc:
        raise InvalidInputError("the value has a type that JSON cannot carry") from exc
    except ValueError as exc:
        raise InvalidInputError("a whole number has too many digits") from exc


def encode_result(obj: object) -> bytes:
    """Encode what a store holds: no JSON that can be stored fails here.

    A lone surrogate becomes an escape and an infinity ``1e999``, both within JSON's grammar; NaN, which has no form in
    JSON, becomes null. ``Codec.decode_result`` reads the first two back as they were.

    Raises:
        InvalidInputError: An unsupported type: no result has one.
    """
    if obj is None:
        return b"null"
    try:
        text = _encoder.encode(obj)
        if b"null" not in text or _is_finite(obj):
            return text
    except (UnicodeEncodeError, RecursionError, TypeError, OverflowError):
        pass
    try:
        return write_json(obj, _encoder.encode).encode()
    except (TypeError, ValueError) as exc:
        raise InvalidInputError("the value has a type that JSON cannot carry") from exc


def decode_answer(body: bytes | memoryview | msgspec.Raw, decoder: msgspec.json.Decoder[Any]) -> Any:
    """Decode what ``encode_result`` wrote.

    Raises:
        ValueError: It does not have the decoder's type.
        RecursionError: Nested too deeply.
    """
    try:
        return decoder.decode(body)
    except msgspec.DecodeError:
        return msgspec.convert(decode_leniently(body), decoder.type)


def canonical(obj: object) -> bytes:
    """Encode a value so that equal ones give equal bytes: keys in order; what was JSON already stays as it was.

    Raises:
        InvalidInputError: As `encode`.
    """
    return encode(obj, _sorted_encoder)


def _is_finite(obj: object) -> bool:
    """Whether no number in it is NaN or infinite: msgspec writes those as null without a word."""
    if isinstance(obj, float):
        return math.isfinite(obj)
    for value in _members(obj):
        # Most members are of these kinds, and most answers hold a null: a call less for each is half of the time.
        kind = type(value)
        if kind is float:
            if not math.isfinite(value):
                return False
        elif kind not in _PLAIN and not _is_finite(value):
            return False
    return True


def _refuse_non_finite(obj: object) -> None:
    if not _is_finite(obj):
        raise InvalidInputError("a number is NaN or infinite, which JSON cannot carry")


def _members(obj: object) -> Iterable[Any]:
    if isinstance(obj, dict):
        return obj.values()
    if isinstance(obj, (list, tuple, set, frozenset)):
        return obj
    if isinstance(obj, Mapping):
        return obj.values()
    if hasattr(obj, "__dataclass_fields__"):
        return [getattr(obj, name) for name in obj.__dataclass_fields__]
    return ()


@dataclass(frozen=True, slots=True)
class Codec:
    """JSON for the parameters and the result of one function."""

    name: str
    params_type: type[msgspec.Struct]
    result_type: Any
    extra_type: Any
    signature: inspect.Signature
    _result_decoder: msgspec.json.Decoder[Any]

    @classmethod
    def of(cls, fn: Callable[..., Any], *, skip_first: bool = True) -> Codec:
        """Build the codec of `fn` from its signature and type hints.

        Args:
            fn: A transaction script `f(conn, /, ...)`, or any function whose parameters can be named.
            skip_first: Leave out the first parameter, which must be positional-only.
        Raises:
            TypeError: A parameter cannot be sent by name, or a type has no JSON form.
        """
        parameters = list(inspect.signature(fn).parameters.values())
        if skip_first:
            if not parameters or parameters[0].kind is not inspect.Parameter.POSITIONAL_ONLY:
                raise TypeError(f"{fn.__name__}: the first parameter must be positional-only")
            parameters = parameters[1:]
        hints = _hints(fn, [p.name for p in parameters])
        fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
        extra: Any = None
        for parameter in parameters:
            hint = hints.get(parameter.name, Any)
            if parameter.kind is inspect.Parameter.VAR_KEYWORD and get_origin(hint) is Unpack:
                changes = get_type_hints(get_args(hint)[0])
                fields += [(name, hint, msgspec.UNSET) for name, hint in changes.items()]
            elif parameter.kind is inspect.Parameter.VAR_KEYWORD:
                extra = hint
            elif parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.POSITIONAL_ONLY):
                raise TypeError(f"{fn.__name__}: parameter {parameter.name} cannot be sent by name")
            elif parameter.default is inspect.Parameter.empty:
                fields.append((parameter.name, hint))
            else:
                # Absent stays absent: the function's own default applies on the other side.
                fields.append((parameter.name, hint, msgspec.UNSET))
        name = fn.__name__
        params_type = msgspec.defstruct(
            f"{name}_params", fields, kw_only=True, forbid_unknown_fields=extra is None, gc=False
        )
        result = _answer(hints.get("return", Any))
        if getattr(get_origin(result), "__deferred__", False):
            result = get_args(result)[0]
        elif getattr(result, "__deferred__", False):
            result = Any
        msgspec.json.Decoder(params_type)
        return cls(
            name=name,
            params_type=params_type,
            result_type=result,
            extra_type=extra,
            signature=inspect.Signature(parameters),
            _result_decoder=msgspec.json.Decoder(result),
        )

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Turn the arguments of a call into parameters by name; defaults stay absent.

        Raises:
            TypeError: As a direct call would.
        """
        bound = self.signature.bind(*args, **kwargs).arguments
        for parameter in self.signature.parameters.values():
            if parameter.kind is inspect.Parameter.VAR_KEYWORD:
                bound.update(bound.pop(parameter.name, {}))
        return dict(bound)

    def encode(self, obj: object) -> bytes:
        """Encode parameters; see `encode` of the module."""
        return encode(obj)

    def encode_result(self, obj: object) -> bytes:
        """Encode a result; see `encode_result` of the module."""
        return encode_result(obj)

    def decode_params(self, body: bytes | memoryview | msgspec.Raw, *, is_proved: bool = False) -> dict[str, Any]:
        """Decode and check parameters; the names that were sent, no others.

        Args:
            is_proved: No key stands twice in one of its objects.
        Raises:
            InvalidInputError: Not JSON, an unknown or missing name, a wrong type, or a key that stands twice. Names
                the parameter, never a value.
        """
        try:
            if self.extra_type is not None:
                params = self._convert(msgspec.json.decode(body, type=dict[str, Any]), strict=True)
            else:
                params = _present(msgspec.json.decode(body, type=self.params_type))
            if not is_proved:
                refuse_doubled_keys(self.name, bytes(body), len(params))
        except (msgspec.MsgspecError, RecursionError, UnicodeError) as exc:
            raise InvalidInputError(sentence(self.name, exc)) from None
        return params

    def decode_query(self, query: Mapping[str, str]) -> dict[str, Any]:
        """Decode parameters that arrive as text, such as a query string.

        Raises:
            InvalidInputError: As `decode_params`.
        """
        try:
            return self._convert(dict(query), strict=False)
        except (msgspec.MsgspecError, UnicodeError) as exc:
            raise InvalidInputError(sentence(self.name, exc)) from None

    def _convert(self, values: dict[str, Any], *, strict: bool) -> dict[str, Any]:
        extra: dict[str, Any] = {}
        if self.extra_type is not None:
            known = self.params_type.__struct_fields__
            unknown = {k: v for k, v in values.items() if k not in known}
            values = {k: v for k, v in values.items() if k in known}
            extra = msgspec.convert(unknown, GenericAlias(dict, (str, self.extra_type)), strict=strict)
        return {**_present(msgspec.convert(values, self.params_type, strict=strict)), **extra}

    def decode_result(self, body: bytes | memoryview | msgspec.Raw) -> Any:
        """Decode a result into the function's return type.

        Raises:
            WireError: The answer does not have that type.
        """
        try:
            return decode_answer(body, self._result_decoder)
        except (ValueError, RecursionError) as exc:
            raise WireError(f"the answer to {self.name} could not be understood") from exc


@functools.cache
def codec_of(script: Callable[..., Any]) -> Codec:
    """The codec of a transaction script, built once in this process: building costs half a millisecond."""
    return Codec.of(script)


def decode_call(call: tuple[Callable[..., Any], bytes]) -> dict[str, Any]:
    """Decode the parameters of a transaction script, as its `Codec` does; for a worker, which can be sent no codec.

    Raises:
        InvalidInputError: As `Codec.decode_params`.
    """
    fn, body = call
    return codec_of(fn).decode_params(body)


def _hints(fn: Callable[..., Any], names: Sequence[str]) -> dict[str, Any]:
    # One by one: the annotation of `conn` may exist only for type checkers.
    annotations = inspect.get_annotations(inspect.unwrap(fn))
    wanted = {name: annotations[name] for name in (*names, "return") if name in annotations}
    namespace = getattr(inspect.unwrap(fn), "__globals__", {})
    holder: Any = SimpleNamespace(__annotations__=wanted)
    hints = get_type_hints(holder, globalns=namespace, include_extras=True)
    return {name: None if hint is type(None) else hint for name, hint in hints.items()}


def _answer(result: Any) -> Any:
    """A result type without the refusal that a script may return: what is refused arrives as a problem."""
    members = get_args(result)
    kept = [member for member in members if not getattr(member, "__refused__", False)]
    if len(kept) == len(members):
        return result
    return functools.reduce(operator.or_, kept) if kept else None


def _present(params: msgspec.Struct) -> dict[str, Any]:
    values = ((name, getattr(params, name)) for name in params.__struct_fields__)
    return {name: value for name, value in values if value is not msgspec.UNSET}


def sentence(operation: str, exc: Exception) -> str:
    """What a decoder's error means, in words that quote no value."""
    text = str(exc)
    if isinstance(exc, RecursionError):
        return f"{operation}: the JSON is nested too deeply"
    if not isinstance(exc, msgspec.ValidationError):
        return f"{operation}: the body is not valid JSON text in UTF-8"
    if found := _EXPECTED.match(text):
        expected, got, name = found.groups()
        where = f"parameter {name}" if name else "the parameters"
        return f"{operation}: {where} must be {expected}, not {got}"
    if found := _FIELD.search(text):
        what, field, parent = found.groups()
        verb = "misses" if what.startswith("missing") else "has an unknown"
        if parent:
            return f"{operation}: parameter {parent} {verb} field {field[:_NAME_LIMIT]!a}"
        if what.startswith("missing"):
            return f"{operation}: parameter {field} is missing"
        return f"{operation}: there is no parameter {field[:_NAME_LIMIT]!a}"
    path = _PATH.search(text)
    return f"{operation}: {f'parameter {path[1]}' if path else 'a parameter'} has a value that is not allowed"
