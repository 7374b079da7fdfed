"""Which question a short message answers."""

from kemem.records import Message
from kemem.text.replies import question_before
from tests.cases import each


def said(role: str, content: str) -> Message:
    return Message("m", "a", "u", "s", role, content, 1, 1)


@each(
    ("asked", "reply"),
    [
        ("What is your dog called?", "Biscuit."),
        ("你家的狗叫什么名字？", "豆包"),
        (
            "What is your dog called?",
            "The dog's name is Biscuit, after the ones my gran used to bake.",
        ),
        ("你家的狗叫什么名字？", "我家的狗叫豆包，今年三岁了，是只柯基"),
        ("Do you still live in Porto?", "No, we packed up in the spring and went back home."),
        ("你还住在厦门吗？", "没有，春天的时候我们就收拾东西回老家了"),
    ],
)
def test_an_answer_comes_with_its_question(asked: str, reply: str) -> None:
    assert question_before(said("user", reply), [said("assistant", asked)]) == asked


@each(
    ("asked", "reply"),
    [
        ("What is your dog called?", "By the way, I changed jobs."),
        ("你家的狗叫什么名字？", "对了，我换工作了"),
        ("What is your dog called?", "I changed jobs last week and work at a bakery in Porto now."),
        ("你家的狗叫什么名字？", "我上周换了工作，现在在一家面包店上班"),
        ("What is your dog called?", "Where can I get a good lead?"),
    ],
)
def test_what_is_about_something_else_does_not(asked: str, reply: str) -> None:
    assert question_before(said("user", reply), [said("assistant", asked)]) == ""
