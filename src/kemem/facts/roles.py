"""Who people, pets and groups are to each other: one table for both languages."""

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Role:
    """What somebody is to an owner.  mother: 妈妈, mom; X --parent_of--> the owner"""

    name: str  # in topics: "user/mother"
    pronoun: str  # he, she, it, they; "" where only the name could tell
    relation: str  # from the owner to the one in the role; "<" turns it round
    one: bool  # a new one takes the place of the old
    kind: str
    chinese: str
    english: str


def _roles(kind: str, rows: str) -> list[Role]:
    cells = [line.split() for line in rows.strip().splitlines()]
    return [Role(n, p.strip("-"), r, one == "one", kind, zh, en) for n, p, r, one, zh, en in cells]


ROLES = [
    *_roles(
        "person",
        """
mother she <parent_of one 妈妈|母亲|老妈|妈 mom|mum|mother|mama|Mom|Mum
father he <parent_of one 爸爸|父亲|老爸|爸 dad|father|papa|Dad
parents they <parent_of one 父母|爸妈|爸爸妈妈 parents
partner she married_to one 老婆|妻子|太太|爱人|媳妇 wife
partner he married_to one 老公|丈夫|先生 husband
partner she dating one 女朋友|女友 girlfriend
partner he dating one 男朋友|男友 boyfriend
partner - partner_of one 对象|伴侣|未婚妻|未婚夫 partner|fiancée|fiancé|fiance|spouse
son he parent_of many 儿子 son
daughter she parent_of many 女儿 daughter
child - parent_of many 孩子|小孩|宝宝 child|kid|children|kids|baby
brother he sibling_of many 哥哥|弟弟|兄弟|大哥|二哥|哥|弟 brother
sister she sibling_of many 姐姐|妹妹|姐妹|大姐|姐|妹 sister
grandmother she <grandparent_of many 奶奶|外婆|姥姥|祖母 grandma|grandmother
grandfather he <grandparent_of many 爷爷|外公|姥爷|祖父 grandpa|grandfather
aunt she relative_of many 阿姨|姑姑|姨妈|舅妈|婶婶 aunt
uncle he relative_of many 叔叔|舅舅|伯伯|姑父 uncle
cousin - relative_of many 表哥|表弟|表姐|表妹|堂哥|堂弟|堂姐|堂妹|侄子|侄女 cousin|nephew|niece
friend - friend_of many 好朋友|朋友|闺蜜|好友|哥们|死党 best_friend|friend|buddy
classmate - classmate_of many 大学同学|高中同学|同学|师兄|师姐|师弟|师妹|校友 classmate
roommate - roommate_of many 室友|舍友 roommate|flatmate|housemate
colleague - colleague_of many 同事|搭档|队友 colleague|coworker|co-worker|teammate
neighbor - neighbor_of many 邻居 neighbor|neighbour
manager - <manager_of one 老板|领导|上司|上级|经理|主管|leader manager|boss|supervisor
advisor - advised_by one 导师|博导|硕导 advisor|adviser|mentor|PhD_advisor
student - <advised_by many 学生 student
subordinate - manager_of many 下属|徒弟|助理 subordinate|assistant
teacher - <teacher_of many 老师|班主任|教练 teacher|coach|tutor
doctor - <doctor_of many 医生|牙医 doctor|dentist|therapist
landlord - <landlord_of one 房东 landlord|landlady
""",
    ),
    *_roles(
        "animal",
        """
cat it has_pet many 猫|猫咪|猫猫 cat|kitten
dog it has_pet many 狗|狗狗|小狗 dog|puppy
pet it has_pet many 宠物|兔子|仓鼠|鹦鹉|乌龟 pet|rabbit|hamster|parrot|turtle|horse|bird
""",
    ),
    *_roles(
        "organization",
        """
team they - one 团队|小组|项目组|部门|班级 team|department|group
company it - one 公司|单位|工作室 company|employer|startup|firm|office
school it - one 学校|大学|学院|实验室 school|university|college|lab
family they - one 家人|全家|家里人|家里 family|household
""",
    ),
    *_roles("thing", "project it - many 项目|产品|论文|店|小店 project|product|paper|shop|thesis"),
]
CHINESE = {word: role for role in ROLES for word in role.chinese.split("|")}
ENGLISH = {word.replace("_", " "): role for role in ROLES for word in role.english.split("|")}


def any_of(words: dict[str, Role]) -> str:
    """A pattern for the words of a language, the longest first."""
    return "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))
