"""Turns of a conversation as token ids, exactly as the chat template renders them with thinking off."""

from dataclasses import dataclass

from tokenizers import Tokenizer


@dataclass
class Encoded:
    ids: list
    value: list  # indices of the tokens that hold the sentence's value


class TurnWriter:
    """Encodes messages; special tokens come by content, and text is never read as a special token."""

    def __init__(self, tokenizer_path):
        self._tokenizer = Tokenizer.from_file(str(tokenizer_path))
        special = self._tokenizer.token_to_id
        start, end = special("<|im_start|>"), special("<|im_end|>")
        newline, blank_line = self._ids("\n"), self._ids("\n\n")
        self.end_id = end
        self.newline = newline
        self.digits = [self._ids(d)[0] for d in "0123456789"]
        self._tokens_of = {}
        self._user = [start] + self._ids("user\n")
        self._system = [start] + self._ids("system\n")
        self._assistant = [start] + self._ids("assistant\n") + [special("<think>")] + blank_line + [special("</think>")] + blank_line
        self._close = [end] + newline
        self._tool = ([special("<tool_response>")] + newline, newline + [special("</tool_response>")])

    def _ids(self, text):
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    def text(self, ids):
        return self._tokenizer.decode(ids, skip_special_tokens=False)

    def line(self, text):
        """Ids of text without values; remembered, for lines and phrases that come again."""
        if text not in self._tokens_of:
            self._tokens_of[text] = self._ids(text)
        return self._tokens_of[text]

    def fresh(self, text):
        """The same for text that will not come again."""
        return self._ids(text)

    def sentence(self, sentence):
        """Ids of a Sentence and which of them hold its value."""
        ids, (value,) = self.passage(sentence.text, [(sentence.value_start, sentence.value_end)])
        return Encoded(ids, value)

    def passage(self, text, spans):
        """Ids of a text, and for each span of its characters the indices of the ids that hold it."""
        encoding = self._tokenizer.encode(text, add_special_tokens=False)
        return encoding.ids, [[i for i, (start, end) in enumerate(encoding.offsets) if end > first and start < last] for first, last in spans]

    def user(self, content):
        return self._user + content + self._close

    def system(self, content):
        return self._system + content + self._close

    def tool(self, content):
        return self._user + self._tool[0] + content + self._tool[1] + self._close

    @property
    def user_prefix(self):
        """Tokens before a user message's content."""
        return len(self._user)

    @property
    def tool_prefix(self):
        """The same before a tool's output."""
        return len(self._user) + len(self._tool[0])

    @property
    def prompt(self):
        """The generation prompt: what stands before an assistant's content."""
        return self._assistant

    def assistant(self, content):
        return self._assistant + content + self._close
