"""English predicates in the third person, and what they mean (see `grammar` for the form)."""

import re
from functools import cache

from kemem.facts.grammar import Language, rules
from kemem.facts.roles import ENGLISH, any_of
from kemem.text.patterns import any_word, words

_TITLE = r"(?:Professor|Prof\.?|Dr\.?|Mr\.?|Mrs\.?|Ms\.?) "
NAME = rf"(?:{_TITLE})?(?:O')?[A-Z][\w-]*[a-z](?: [A-Z][\w-]*[a-z])?"
FIRST_NAMES = words(
    """
    Aaron Abby Adam Ahmed Aisha Alan Alex Alice Amanda Amir Amy Andrea Andrew Angela Ann Anna Anne
    Anthony Arjun Ben Beth Bill Bob Brian Carl Carlos Carol Caroline Charles Charlie Chen Chloe
    Chris Christina Claire Clara Daniel Dave David Deborah Diana Diego Donna Dylan Ed Elena
    Elizabeth Emily Emma Eric Erik Ethan Eva Evan Fatima Fiona Frank Gary George Gina Grace Greg
    Hannah Harry Helen Henry Ian Igor Irene Isabel Ivan Jack Jacob Jake James Jamie Jane Janet Jason
    Jeff Jennifer Jenny Jess Jessica Jill Jim Joan Joanna Joe John Jon Jonathan Jordan Jose Joseph
    Josh Juan Judy Julia Julie Justin Karen Kate Katie Keith Kelly Ken Kevin Kim Kyle Laura Lauren
    Leo Li Liam Lily Linda Lisa Liz Lucas Lucy Luis Luke Maria Marie Mark Martin Mary Matt Matthew
    Max Megan Melanie Mia Michael Michelle Miguel Mike Ming Mohammed Molly Nancy Natalie Nate Nathan
    Nick Nina Noah Nora Oliver Olivia Omar Oscar Pablo Pam Patricia Patrick Paul Pedro Peter Phil
    Priya Rachel Raj Ravi Rebecca Richard Rick Rob Robert Ron Rosa Ruth Ryan Sally Sam Samantha
    Sandra Sara Sarah Scott Sean Simon Sofia Sophia Sophie Stephen Steve Steven Sue Susan Tara Ted
    Thomas Tim Tina Tom Tony Tracy Victor Victoria Wei Wendy Will William Yuki Zoe
    """
)
_JOBS = """
engineer developer programmer designer architect analyst consultant manager director teacher
professor lecturer researcher scientist nurse doctor surgeon lawyer attorney accountant chef cook
baker barista waiter waitress driver pilot plumber carpenter electrician mechanic farmer writer
author editor journalist reporter translator photographer painter actor actress singer musician
salesperson officer soldier cop firefighter paramedic librarian secretary assistant coach trainer
tutor founder CEO CTO CFO freelancer contractor entrepreneur banker broker trader veterinarian vet
postdoc intern recruiter marketer planner builder tailor hairdresser cashier clerk janitor guide
[a-z]+ologist [a-z]+(?:ist|ician|wright)
"""
_NATIONS = """
American British English Scottish Irish Welsh French German Dutch Belgian Swiss Austrian Italian
Spanish Portuguese Greek Turkish Polish Czech Hungarian Romanian Bulgarian Serbian Croatian Russian
Ukrainian Swedish Norwegian Danish Finnish Icelandic Chinese Taiwanese Japanese Korean Vietnamese
Thai Indonesian Malaysian Filipino Indian Pakistani Bangladeshi Nepali Iranian Iraqi Israeli
Lebanese Egyptian Moroccan Nigerian Kenyan Ethiopian Ghanaian Canadian Mexican Brazilian Argentinian
Chilean Colombian Peruvian Cuban Australian Singaporean
"""
MOODS = """
sure wondering asking glad happy sad sorry tired bored hungry fine good ok okay done ready back here
confused stuck curious excited afraid aware right wrong concerned leaning waiting thinking
struggling following worried grateful thankful proud nervous determined gonna
"""
_NO_NAMES = """
african african-american asian european latin[oax]? hispanic arab texan californian londoner yorker
muslim christian catholic protestant jewish buddhist hindu atheist agnostic mormon sikh aussie kiwi
brit aries taurus gemini virgo libra scorpio sagittarius capricorn aquarius pisces republican
democrat gen team senior junior lead head product project sales pro student graduate mom mum dad man
woman guy girl boy vegan vegetarian pescatarian single married divorced engaged pregnant retired
home great there busy sick late early new free alone broke drunk awake asleep lost old young tall
short sober lucky serious just kidding not so very too quite still also always never in on at from
with about to the a an all off out up down later tomorrow tonight today now maybe crazy when if
important urgent awesome perfect nice cool weird (?:mon|tues|wednes|thurs|fri|satur|sun)day
[\\w-]*(?:ish|ese|ous|ful|less|able|ible|\\w{3}ing|-\\w+ed|sick|ally)
"""
_NO_NAMES += MOODS + _JOBS + _NATIONS
_PETS = """
dog puppy cat kitten rabbit bunny hamster parrot turtle tortoise goldfish bird horse pony snake
lizard ferret retriever labrador lab poodle corgi husky shepherd beagle bulldog terrier tabby
"""
_ILLS = """
asthma diabetes hypertension ADHD autism depression anxiety insomnia migraines? epilepsy cancer
arthritis anemia eczema celiac scoliosis dyslexia gout sciatica allergies tinnitus OCD PTSD
[a-z]+(?:itis|osis|emia|algia) high_blood_pressure low_blood_pressure
"""
_STATES = (
    "lactose_intolerant pregnant diabetic colou?r-?_?blind dyslexic deaf near-?sighted autistic"
)
_ITEMS = """
db DB database server cluster port time_?zone IP(?:_address)? environment branch editor IDE OS
stack framework API backend frontend config pipeline deployment repo domain CI cache queue
"""
_BOOKED = """
appointment meeting interview exam test flight date wedding surgery party deadline reservation call
class presentation trip concert conference checkup ceremony session
"""
_HOBBIES = (
    "swim cook drive code program draw paint dance sing ski skate surf knit sew juggle type ride"
)


_SLOTS = {
    "BE": "(?:is|are|'s|was|has been|have been)",
    "LIGHT": "(?P<verb>(?:(?:eat|drink|play|watch|read)(?:ing)?|listen(?:ing)? to) )?",
    "A": "(?:(?:a|an|the|one|two|three|four|five|some|user's|his|her|their|\\d+) )",
    "ADJ": "(?:(?:[a-z-]+) ){0,3}?",
    "BOOKED": any_word(_BOOKED) + "s?",
    "SET": "runs? on|is (?:set to|running on|hosted on|on|at)|listens? on|points to|is",
    "NATION": any_word(_NATIONS),
    "STATE": any_word(_STATES),
    "HOBBY": any_word(_HOBBIES),
    "WILL": (
        "(?:is|are) (?:planning|going|hoping|about|scheduled) to |(?:plans?|wants?|hopes?) to "
        "|(?:is|are) (?:thinking (?:about|of)|considering) "
        ""
    ),
    "place": r"(?!the (?:cloud|moment|end)\b|order\b|love\b|a (?:hurry|meeting|way)\b)[^,]{2,40}?",
    "organization": "[^,]{2,40}?",
    "school": "[^,]*?(?:[Uu]niversity|[Cc]ollege|[Ss]chool|Institute)[^,]{0,20}?|[A-Z]{2,6}",
    "occupation": rf"(?:[\w/-]+ ){{0,4}}?{any_word(_JOBS)}",
    "field": "(?!for )[^,]{2,40}?",
    "subject": r"(?!(?:user|him|her|them|you|people|how|at|in|my|our)\b)[^,]{2,40}?",
    "person": NAME,
    "self": rf"(?={_TITLE}[A-Z]|(?!(?:\S+ )?(?i:{any_word(_NO_NAMES)})\b)){NAME}",
    "owner": f"user|{NAME}",
    "role": any_of(ENGLISH),
    "thing": r"(?!(?:it|this|that|him|them|these|those|to|you|when|how|what|if)\b)[^;]{2,60}?",
    "animal": rf"(?:[\w-]+ ){{0,3}}?{any_word(_PETS)}s?",
    "illness": rf"(?:[\w-]+ ){{0,3}}?{any_word(_ILLS)}",
    "language": "(?:(?:a (?:little|bit of)|some|fluent|basic|native) )?[A-Z][^;]{2,50}?",
    "product": r"(?!this\b|that\b|it\b)[^,]{2,30}?",
    "item": rf"(?:[\w-]+(?:'s)? ){{0,3}}?{any_word(_ITEMS)}",
    "value": "[^;]{1,60}?",
    "words": "[^,]{1,30}?",
    "email": r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+",
    "phone": r"\+?\(?\d[\d ()-]{5,18}\d",
    "handle": r"@?[\w.#-]{2,40}",
}
_TAIL = (
    r"(?:,? (?:now|too|as well|these days|at the moment|currently|very much|a lot|so much"
    r"|any ?more|any longer|again|together|since|right now"
    r"|(?:for|since|with|because|so|which|that|when|after|before|while|although|though|as|especially"
    r"|such as|only|mainly|but) [^;]*))?"
)
_TABLE = """
contact {s}/email -
  's e-?mail(?: address)? is <email>
contact {s}/phone -
  's (?:phone|cell|mobile|telephone|number|contact)(?: ?(?:phone|number))* is <phone>
  @You can (?:reach|call|text|contact) user (?:at|on) <phone>
contact {s}/{words} -
  's (?P<words>Telegram|GitHub|Github|Twitter|Discord|Slack|Instagram|WeChat|LinkedIn|Skype)
    (?: (?:handle|username|account|id|ID|name))? is <handle>
identity {s}/nickname - by:naming
  @(?:(?:[Pp]lease|[Jj]ust|[Yy]ou can|[Ee]veryone|[Ee]verybody|[Pp]eople|Friends|User's friends) )*
    [Cc]alls? user
    (?: )<self as person>
  goes by <person>
identity {s}/age -
  (?:is|turned|turns|will be|is turning) (?P<age>\\d{1,3})(?: years? old| years of age)?
  is (?:a|an) (?P<age>\\d{1,3})[- ]year[- ]old [^,]*
identity {s}/birthday -
  's birthday (?:is|falls)(?P<date>[^;]*)
  was born(?: on)?
identity {s}/gender -
  is (?:a )?(?P<gender>man|woman|male|female|guy|girl|boy|non-?binary)
identity {s}/nationality -
  is (?:half |a )?(?P<nation><NATION>)(?: citizen)?
  's nationality is (?P<nation>\\w+)
relationship {s}/partner -
  (?:broke|split) up(?: with [^,]*)?
  <BE> (?:single|divorced|widowed|engaged|married|in a relationship)
  got (?:engaged|married|divorced)
relationship {s}/partner married_to:person
  (?:<BE>|got) married to <person>
  married <person>
relationship - - by:has_role
  (?:has|have) <A><ADJ><role>s?(?:,? (?:named|called|whose name is) <person>)?
  and <person> are <ADJ><role>s
relationship - - by:role_of
  is <owner>'s <ADJ><role>
  is <A><ADJ><role> of <owner>(?:'s)?
identity - has_pet:name|animal by:pet
  (?:has|have|got|adopted|owns?|keeps?) <A><animal>
    (?:,? (?:named|called|whose name is) <person as name>)?
health {s}/allergy/{thing} allergic_to:thing each:thing
  <BE> (?:severely |badly |deathly |very |mildly )?allergic to <thing>
  has (?:a |an )?(?:severe |bad |mild )?(?P<thing>[a-z]+) allergy
health - -
  (?:has|had|have|suffers? from|was diagnosed with|is struggling with) (?:a |an )?<illness>
  has (?:trouble|difficulty|problems) (?:sleeping|breathing|hearing|seeing|walking)
  is (?P<illness><STATE>)
  (?:takes?|is on) (?P<thing>[^,]{2,30}? (?:medication|pills|tablets|insulin))
health {s}/blood_type -
  's blood type is <value>
residence {s}/lives_in -
  moved (?:out of|away from) (?P<left>[^,]{2,40}?)
residence - -
  (?:doesn't|does not) live in (?P<left>[^,]{2,40}?)
residence - lived_in:place
  used to live in <place>
residence {s}/lives_in lives_in:place
  lives? (?:in|near|at) <place>
  (?:<BE> )(?:living|based|residing|settled) in <place>
  (?:has |have )?(?:lived|resided) in <place>
  (?:has |have )?(?:moved|relocated)(?: back| here)? to <place>(?: from [^,]*)?
  's (?:home|house|address) is (?:in |at )?<place>
residence {s}/from from:place
  <BE> from <place>
  comes? from <place>
  (?:grew up|was raised) in <place>
  's hometown is <place>
residence {s}/born_in born_in:place
  was born(?: and raised)? in <place>
education {s}/graduated_from graduated_from:organization,studies:field
  (?:graduated|got [^,]{2,20}? degree|has [^,]{2,20}? degree) from <organization>
    (?: with (?:a|an) [^,]*?(?: in <field>)?)?
  (?:has|holds|got) (?:a|an) (?:PhD|MBA|degree|(?:master's|bachelor's)(?: degree)?)
    (?: in <field>)?(?: from <organization>)?
education {s}/studies_at studies_at:organization,studies:field
  (?:studies|study|is studying|are studying) (?:at|in) <organization>
  (?:studies|study|is studying|are studying|majors in|is majoring in) <field> at <organization>
  (?:is doing|is pursuing|is getting|does) (?:a|an|user's|his|her) (?:PhD|[Mm]aster's|degree|MBA)
    (?: degree)?(?: in <field>)? at <organization>
  is (?:a|an) <ADJ>(?:student|undergrad|undergraduate|freshman|sophomore|PhD candidate)
    (?: in <field>)? at <organization>
  (?:attends|is enrolled at|goes to|got into|was admitted to) <school as organization>
education {s}/studies_at -
  (?:dropped out of|was expelled from) (?P<left>[^,]{2,40}?)
education {s}/studies studies:field
  (?:studies|study|is studying|are studying|majors in|is majoring in) <field>
  's (?:major|field|research area) is <field>
education {s}/job -
  is (?:a|an) <ADJ>(?:student|undergrad|undergraduate|freshman|sophomore)
work {s}/works_at teaches_at:organization,teaches:field
  (?:teach(?:es)?|<BE> teaching) (?:<subject as field> )?at <organization>
work {s}/teaches teaches:field
  (?:teach(?:es)?|<BE> teaching) <subject as field>
work {s}/works_at -
  (?:quit|left|resigned from|lost|gave up) user's (?:\\w+ )?(?:job|position|role)
    (?: (?:at|with|as) [^,]*)?
  (?:resigned|(?:was|got) (?:laid off|fired|let go|dismissed))(?: (?:from|by|at) [^,]*)?
  (?:(?:stopped|quit) working (?:at|for)|quit|is no longer (?:at|with)) (?P<left>[A-Z][^,]{1,40}?)
work - worked_at:organization
  (?:worked|used to work|interned) (?:at|for) <organization>
work {s}/works_at works_at:organization,works_in:place,works_as:occupation
  (?:works?|<BE> working|<BE> employed|has worked) (?:at|for|by) <organization>
    (?: in (?P<place>[A-Z][^,]{1,40}?))?(?: as (?:a|an|the) (?P<occupation>[^,]{2,40}?))?
  (?:works?|<BE> working|has worked) as (?:a|an|the) (?P<occupation>[^,]{2,40}?)
    (?: at| for) <organization>
  is (?:a|an|the) <occupation> (?:at|for|with) <organization>
  (?:joined|has joined|was hired by) (?P<organization>[A-Z][^,]{1,40}?)
    (?: as (?:a|an|the) <occupation>)?
work {s}/job -
  is in (?P<field>finance|sales|marketing|tech|IT|HR|education|healthcare|consulting|banking|law
    |medicine|academia|advertising|insurance|logistics|construction|real estate)
  (?:switched|transitioned|moved) (?:in)?to (?P<field>[a-z-]+(?: [a-z-]+){0,2})
work - -
  used to be (?:a|an|in) (?P<field>[^,]{2,40}?)
work {s}/job works_as:occupation
  is (?:a|an|the) <occupation>(?: (?:in|from|based in) [^,]*)?
  (?:works?|<BE> working) as (?:a|an|the) (?P<occupation>[^,]{2,40}?)
  's (?:job|profession|occupation|job title) is (?P<occupation>[^,]{2,40}?)
work {s}/works_in works_in:field
  (?:works?|<BE> working) in <field>
work {s}/job -
  is (?:retired|unemployed|self-employed|between jobs|freelancing)
  retired[^,]*
work - founded:organization
  (?:runs?|owns?|founded|started) (?:a|an|his|her|user's)(?: own)? (?P<organization>[^,]*?
    (?:company|business|startup|bakery|restaurant|shop|store|studio|agency|cafe|café))
user_preference {s}/favorite/{words} likes:thing
  's (?:all-time )?favou?rite <words> (?:is|are) <thing>
user_preference {s}/diet -
  is (?:a |an )?(?:strict )?(?P<thing>vegan|vegetarian|pescatarian|on a keto diet)
  (?:eats|only eats|keeps) (?P<thing>halal|kosher)
user_preference {s}/like/{thing} dislikes:thing each:thing
  (?:doesn't|don't|does not|do not|can't|cannot|never|isn't|is not)(?: really| even)?
    (?: (?:likes?|loves?|enjoys?|eats?|drinks?|stand|tolerate|touch|into|fond of|keen on
    |a fan of|care for))
    (?: to)? <LIGHT><thing>
  (?:hates?|dislikes?|detests?|avoids?|loathes?)(?: to)? <LIGHT><thing>
  is (?:really |so )?(?:afraid|scared|terrified|sick|not a (?:big |huge )?fan) of <thing>
user_preference {s}/like/{thing} likes:thing each:thing
  (?:likes?|loves?|enjoys?|adores?|prefers?)(?: to)? <LIGHT><thing>
    (?: (?:over|to|rather than) [^;]*)?
  <BE> (?:into|fond of|keen on|interested in(?! \\w+ing)|crazy about|obsessed with|passionate about)
    (?: )<LIGHT><thing>
  is (?:a )?(?:big |huge |massive )?fan of <thing>
  's (?:hobby is|hobbies are|hobbies include) <LIGHT><thing>
skill {s}/skill/{language} speaks:language each:language
  (?:speaks?|can speak|<BE> fluent in|<BE> a native speaker of)(?: fluent)? <language>
skill {s}/skill/{thing} plays:thing each:thing
  (?:can play|plays?|knows how to play) (?!with\\b|a role)<thing>
skill {s}/skill/{thing} -
  (?:can|can't|cannot|knows how to|doesn't know how to) (?P<thing><HOBBY>)[^;]*
  is (?:very |pretty |quite )?(?:good|great|skilled|experienced|proficient) (?:at|in|with) <thing>
skill {s}/skill/{thing} studies:thing each:thing
  (?:is|are|has been|started) (?:learning|taking lessons in|teaching \\w+self)(?: how)?(?: to)?
    (?: (?:play|speak))? (?!a lot|more|about)<thing>
skill - expert_in:field
  is (?:a|an|one of the)? ?(?:[\\w-]+ ){0,2}?(?:experts?|specialist|authority|known|famous|renowned)
    (?: in| on| for)(?: the field of)? <field>
setting - uses:product by:setting
  's <item as name> (?:uses|is using|runs(?! on)) <product>
setting - - by:setting
  's <item as name> (?:<SET>) <value>
  @[Tt]he <item as name> (?:<SET>) <value>
setting {s}/setting/{words} -
  (?P<words>deploy|release|ship|back up)s?[^;]* (?:on \\w+days|every [^;]+|at \\d[^;]*|daily|weekly)
plan - plans_to_visit:place
  (?:<WILL>|would (?:like|love) to |will )(?:visit|(?:go|fly|travel|move|drive|head) to)
    (?: )(?!bed|sleep)<place>
  (?:is|are) (?:flying|travell?ing|heading|driving|going) (?:back )?to
    (?: )(?P<place>[A-Z][^,]{1,40}?)
  (?:is|are) visiting <place>
plan - -
  (?:has|have|'s got) (?:a|an|two|three|some|user's)[^;]{0,30}? <BOOKED>[^;]*
  (?:<WILL>)(?!know|ask|see|understand|make sure|be able|thank|say|add|try|check|do\\b|use)[^;]{4,}
  (?:is|are) planning (?!to )[^;]{3,}
  (?:is|are) (?:preparing|studying|training) for [^;]{3,}
event - visited:place
  (?:visited|went to|travell?ed to|has been to|flew to|took a trip to|has visited)
    (?: )(?!bed|sleep|the doctor)<place>
possession - owns:thing
  (?:owns?|drives?|rides?|bought|has bought|got(?= an? (?:new|used))|has|have|has got)
    (?: (?:a|an|two|three|user's own))(?: new| used)?(?: )
    (?P<thing>(?!question|problem|idea|issue|feeling|suggestion|request|bug|lot|few|look|point)[^;]{2,40}?)
event - -
  (?:won|lost|broke|finished|passed|attended|completed|gave birth|got) [^;]{2,}
setting - uses:product
  (?:uses?|is using|are using) (?:a |an |the )?<product>(?: (?:for|as|to|on|at) [^;]*)?
user_preference - -
  [^;@]*\\b(?:every \\w+|each \\w+|usually|always|often|on weekends|daily|(?:once|twice) a \\w+)
    \\b[^;]*
identity {s}/name - by:naming
  (?:'s (?:full |first )?name(?: is|'s)|is (?:called|named)) <person>(?: by the way)?
  is <self as person>(?: by the way)?
"""


@cache  # not at import: compiling takes time
def english() -> Language:
    """The rules of English, ready."""
    return Language(
        rules(_TABLE, _SLOTS, f"%s{_TAIL}"),
        ENGLISH,
        "{}'s {}",
        re.compile(r",? and (?:also )?|, (?:or )?| or | & "),
        re.compile(r"^(?:(?:a little|a bit of|a|an|the|some|user's|fluent|basic|native) )+"),
        [re.compile(rf"{NAME}(?=\s|'s)")],
        re.compile(
            r"'s (?:(?:older|younger|little|big|best|twin|old|ex-?|new|late|elder) ?)?"
            rf"(?P<role>{any_of(ENGLISH)})\b"
        ),
        re.compile(rf"\b[Uu]ser's (?P<role>{any_of(ENGLISH)})\b"),
        re.compile(
            r"(?:(?P<be>is|are)(?: no longer|(?:n't| not)(?=.* any ?(?:more|longer)\b))|no longer"
            r"|do(?:es)?(?:n't| not)(?=.* any ?(?:more|longer)\b))(?= )"
        ),
        re.compile(r",? any ?(?:more|longer)\b.*"),
    )
