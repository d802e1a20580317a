"""A synthetic treebank of a small harbour town: a seeded grammar that writes raw Penn-style trees.

With it the parsing task can be learned, tested and shown without licensed data. The trees have all
that preparation must cope with in the Penn Treebank (Marcus et al., 1993): the unlabelled outer
bracket, traces, function tags, indices, escapes. The structure of a sentence follows from its
words, so F1 close to 100 is within reach. F1 here says nothing about F1 on the Wall Street Journal.

`GRAMMAR` is a page of text and `LEXICON` the words for it; `write_sentence` does a leftmost
derivation: it opens brackets, writes words, and puts for each slot an alternative of its rule.
"""

from __future__ import annotations

import re
from bisect import bisect
from functools import cache
from itertools import accumulate, pairwise
from random import Random
from typing import NamedTuple

from seqtrans.errors import SettingsError
from seqtrans_tasks.parsing.tree import Leaf, Tree

NAME = "synthetic"  # what results on this treebank must be called
LONGEST = 35  # words in a sentence, at most
DAMPING = 0.5  # on a deepening alternative; a power of two, so that sums of weights are exact

# Tag, class: words. A class is a rule: <person.noun> draws one of its words. NN words are inflected
# for number and VB words for form; what is irregular follows a slash, in the order of `VERB_FORMS`.
# With any other tag, a/some means a for one and some for many.
LEXICON = """
NN person.noun: captain sailor fisherman/fishermen merchant baker pilot miller smith farmer widow
   doctor child/children shepherd ferryman/ferrymen fiddler climber potter stranger;
   vessel.noun: boat ferry ship trawler barge schooner dinghy raft;
   animal.noun: gull heron seal dog cat mule goat otter goose/geese;
   goods.noun: net rope crate basket lamp coat blanket kettle map bell knife/knives ladder cart;
   place.noun: harbour quay village market island valley bay lighthouse bridge river inn mill;
   weather.noun: storm gale blizzard squall breeze;
   event: wedding auction race concert feast; container: barrel jar sack;
   substance: salt coal tea honey wool tar; material: oak iron copper straw;
   feature: beard moustache scar accent; rigging: mast deck hull funnel;
   tool: needle hammer brush hook spyglass; period: hour day week month
JJ person.adj: old young tired cheerful stubborn shy; animal.adj: hungry grey timid fat;
   vessel.adj: small rusty swift leaky; goods.adj: heavy broken red blue wooden;
   place.adj: quiet distant foggy sunny; weather.adj: sudden cold bitter;
   part.adj: long black crooked; obvious: obvious clear strange; eager: eager ready afraid
RB manner: slowly quietly carefully gladly; frequency: often always never seldom;
   degree: very rather quite
NNP first: Maren Tobias Ingrid Anselm Greta Odile Henrik Petra; surname: Holm Larsen Quill Thorne;
   title: Captain Doctor Professor; town: Saltby Northhaven Fernmouth Gullwick Stonebridge;
   ship: Aurora Marigold Petrel Comet; weekday: Monday Tuesday Thursday Saturday Sunday;
   month: January April June August November
CD number: two three four seven ten twelve forty; amount: 12 25 40 120 500 1,200
UH interjection: Yes No Indeed Alas Hello Goodbye Well Oh Hurrah Aye
IN inside: in near behind at; along: toward past around; beside: beside above below;
   before: before after; while: before after while until because although; roughly: about nearly
CC and: and but
DT a: a/some; this: this/these every/all
PRP he: he/they she/they; him: him/them
PRP$ his: his her their
VB mend: mend paint clean repair polish borrow; steer: steer launch moor inspect;
   sell: sell/sold buy/bought find/found steal/stole/stolen weigh hide/hid/hidden;
   greet: greet follow thank visit meet/met remember; feed: feed/fed chase catch/caught;
   reach: reach leave/left circle approach; walk: walk hurry wander; drift: drift glide float;
   fly: fly/flew/flown swim/swam/swum/swimming run/ran/run/running; rest: rest doze wait;
   sleep: sleep/slept laugh sing/sang/sung whistle; sink: sink/sank/sunk creak vanish;
   howl: arrive fade howl; batter: batter lash soak; die: die/died/died/dying settle calm;
   say: say/said think/thought believe know/knew/known;
   cry: cry reply shout; tell: tell/told remind warn; want: want try decide promise;
   persuade: ask persuade order teach/taught; enjoy: enjoy avoid finish;
   give: give/gave/given lend/lent send/sent show/showed/shown; fetch: fetch;
   take: take/took require; tie: tie/tied/tied/tying pick wrap/wrapped/wrapped/wrapping;
   throw: throw/threw/thrown carry; be: be/was/been/being/is/were/are;
   have: have/had/had/having/has; do: do/did/done/doing
"""

# A rule's name, then its alternatives: weight, marks, what to write. Brackets, tags, words, traces
# stand as in the treebank; indices are counted on from those already in the sentence.
#   <name>     a slot, in a number drawn anew    2~      deepens: rarer inside others like it
#   <name =>   in the form of this very rule     2/one   for one form alone: one, many, past, now
#   <name ing> in the form that is named         KIND, THING   once for each of `SCHEMES`
#
# Heavy things come last: what holds a clause ends its phrase, so that whatever follows belongs to
# the nearest verb. `KIND` may hold a clause, `KIND.light` may not, and `KIND.core`, all that
# coordination takes, holds no preposition. Which noun or verb a preposition belongs to is told by
# itself (beside, of: noun; near, past: verb) or by the noun after it (with a beard, from Saltby,
# for the widow: noun; with a hammer, from the quay, for two hours: verb).
THINGS = ("vessel", "animal", "goods", "place", "weather")
SCHEMES = {"KIND": ("person", *THINGS), "THING": THINGS}
GRAMMAR = """
sentence      50     (S <clause> (. .))
              4      (S (PP-TMP <day>) (, ,) <clause> (. .))
              5      (S (SBAR-TMP <time>) (, ,) <clause> (. .))
              2      (S (ADVP-MNR <manner>) (, ,) <clause> (. .))
              7~     (S (S <clause>) (, ,) <and> (S <clause>) (. .))
              2~     (S (S <clause>) (: ;) (S <clause>) (. .))
              2~     (S (S <clause>) (: --) (CC or) (S <clause>) (. .))
              2      (S (S (NP-SBJ-1 <person.core =>) (VP <sell => (NP-2 <goods.core>))) (, ,) \
                       (CC and) (S (NP-SBJ=1 <person.core>) (NP=2 <goods.core>)) (. .))
              3~     (SINV (`` ``) (S-TPC-1 <clause>) (, ,) ('' '') \
                       (VP <cry => (S (-NONE- *T*-1))) (NP-SBJ <person.light =>) (. .))
              3~     (S (`` ``) (S-TPC-1 <clause>) (, ,) ('' '') (NP-SBJ <subject =>) \
                       (VP <cry => (SBAR (-NONE- 0) (S (-NONE- *T*-1)))) (. .))
              3      (SBARQ <question> (. ?))
              0.5    (SQ <be => (NP-SBJ <KIND.plain =>) (ADJP-PRD <KIND.adj>) (. ?))
              3      (SQ <do => (NP-SBJ <subject =>) (VP <person.does base>) (. ?))
              3      (S (NP-SBJ (-NONE- *)) (VP <person.does base>) (. !))
              1      (FRAG (RB not) (NP-TMP <today>) (. !))
              2      (FRAG (NP (DT a) <part.adj> <period one>) (PP (IN for) (NP <first>)) (. .))
              2      (S (INTJ <interjection>) (, ,) <clause> (. .))
              1      (INTJ <interjection> (. !))
              1      <interjection>
question      2      (WHNP-1 (WP who)) (SQ (NP-SBJ (-NONE- *T*-1)) (VP <person.does one>))
              2      (WHNP-1 (WP what)) (SQ <do => (NP-SBJ <subject =>) \
                       (VP <mend base> (NP (-NONE- *T*-1)) <where>))
              2      (WHADVP-1 (WRB where)) (SQ <do => (NP-SBJ <subject =>) \
                       (VP <person.act base> (ADVP-LOC (-NONE- *T*-1))))
clause        24     (NP-SBJ <subject =>) (VP <person.does =>)
              2      (NP-SBJ <subject =>) (ADVP-TMP <frequency>) (VP <person.does =>)
              7      (NP-SBJ <vessel =>) (VP <vessel.does =>)
              4      (NP-SBJ <animal =>) (VP <animal.does =>)
              4      (NP-SBJ <weather =>) (VP <weather.does =>)
              1      (NP-SBJ <KIND =>) (VP <be => (ADJP-PRD <degree> <KIND.adj>))
              2      (NP-SBJ <goods =>) (VP <goods.does =>)
              4      (NP-SBJ-1 <goods =>) \
                       (VP <be => (VP <mend en> (NP (-NONE- *-1)) <agent> <where>))
              2      (NP-SBJ-1 <vessel =>) (VP <be => (VP <batter en> (NP (-NONE- *-1)) \
                       (PP (IN by) (NP-LGS <weather.object>))))
              3      (NP-SBJ (EX there)) \
                       (VP <be => (NP-PRD <a => <goods.adj> <goods.noun =>) <where>)
              3~     (NP-SBJ-1 <subject =>) (VP <want => (S (NP-SBJ (-NONE- *-1)) (VP <to.do>)))
              2~     (NP-SBJ (NP (PRP it)) (SBAR (-NONE- *EXP*-1))) \
                       (VP <be one> (ADJP-PRD <obvious>) (SBAR-1 (IN that) (S <clause>)))
              1      (S-NOM-SBJ (NP-SBJ (-NONE- *)) (VP <mend ing> (NP <goods.light>))) \
                       (VP <take one> (NP <number> <period many>))
agent         2      (PP (IN by) (NP-LGS <person.core>))
              1
person.does   12     <person.act => <adjunct>
              2~     (VP <person.act =>) (CC and) (VP <person.act => <adjunct>)
              2/past (MD could) (VP <person.act base> <adjunct>)
              2/now  (MD will) (VP <person.act base> <adjunct>)
              1/past <do => (RB n't) (VP <person.act base> <adjunct>)
              1/now  <do => (RB not) (VP <person.act base> <adjunct>)
              1/past <have => (VP <person.act en> <adjunct>)
              5~     <mend => (NP <goods>)
              2~     <greet => (NP <person>)
              2~     <reach => (NP <place>)
              4~     <say => (SBAR <that> (S <clause>))
              2~     <tell => (NP <person.light>) (SBAR (IN that) (S <clause>))
              2~     <persuade => (NP-1 <person.light>) (S (NP-SBJ (-NONE- *-1)) (VP <to.do>))
              2~     <enjoy => (S (NP-SBJ (-NONE- *)) (VP <person.does ing>))
              1~     <be => (ADJP-PRD <eager> (S (NP-SBJ (-NONE- *)) (VP <to.do>)))
              2~     <mend => (NP <goods.light>) \
                       (S-PRP (NP-SBJ (-NONE- *)) (VP (TO to) (VP <person.act base>)))
to.do         1      (TO to) (VP <person.does base>)
person.act    5      <mend => (NP <goods.object>)
              4      <sell => (NP <goods.object>)
              2      <sell => (NP <cargo>)
              2      <steer => (NP <vessel.object>)
              3      <greet => (NP <person.object>)
              1      <feed => (NP <animal.light>)
              3      <reach => (NP <place.object>)
              5      <walk => (PP-DIR <direction>)
              2      <sleep =>
              2      <give => (NP <person.core>) (NP <goods.light>)
              2      <give => (NP <goods.core>) (PP-DTV (TO to) (NP <person.core>))
              1      <tie => (PRT (RP up)) (NP <goods.light>)
              1      <throw => (PRT (RP away)) (NP <goods.light>)
cargo         1      <substance one>
              2      (NP <a => <container =>) (PP (IN of) (NP <substance one>))
vessel.does   4      <drift => (PP-DIR <direction>) <setting>
              3      <reach => (NP <place.light>) <setting>
              2      <sink => <setting>
              1~     <reach => (NP <place>)
              1      <fetch => (NP (QP ($ $) <amount> (CD million)) (-NONE- *U*))
animal.does   3      <fly => (PP-DIR <direction>) <setting>
              2      <feed => (NP <animal.object>) <setting>
              2      <rest => <setting>
weather.does  3      <howl => <setting>
              3      <batter => (NP <vessel.light>) <setting>
              2      <batter => (NP <place.light>) <setting>
              1      <die => (PRT (RP down)) <setting>
goods.does    1      <be => (ADJP-PRD <goods.adj>)
              1      <fetch => (NP ($ $) <amount> (-NONE- *U*))
place.does    1      <be => (ADJP-PRD <degree> <place.adj>)
adjunct       16     <setting>
              2      (ADVP-MNR <manner>)
              2      (PP-MNR (IN with) (NP (DT a) <tool one>))
              2      (PP-TMP (IN for) (NP <number> <period many>))
setting       6
              6      <where>
              2      (PP-TMP <day>)
              1      (PP-TMP <before> (NP (DT the) <event one>))
              1      (NP-TMP <today>)
              1      <where> (PP-TMP <day>)
              3~     (SBAR-TMP <time>)
              1~     (PP-LOC <inside> (NP <place>))
where         1      (PP-LOC <inside> (NP <place.light>))
direction     4      <along> (NP <place.core>)
              1      (TO to) (NP <town>)
              1      (IN from) (NP (DT the) <place.noun one>)
time          3      <while> (S <clause>)
              2      (WHADVP-1 (WRB when)) \
                       (S (NP-SBJ <subject =>) (VP <person.act => (ADVP-TMP (-NONE- *T*-1))))
              2      (WHADVP-1 (WRB when)) \
                       (S (NP-SBJ <weather.light =>) (VP <howl => (ADVP-TMP (-NONE- *T*-1))))
day           2      (IN on) (NP <weekday>)
              1      (IN in) (NP <month>)
              1      (IN during) (NP (DT the) <event one>)
today         2      <this one> <period one>
              1      <this one> (NN morning)
that          1      (IN that)
              1      (-NONE- 0)
KIND          12     <KIND.light =>
              2~     (NP <KIND.plain =>) (SBAR <KIND.who =>)
KIND.object   8      <KIND.light>
              2~     (NP <KIND.core>) (CC and) (NP <KIND.core>)
              1~     (NP <KIND.core>) (, ,) (NP <KIND.core>) (CC and) (NP <KIND.core>)
KIND.light    6      <KIND.core =>
KIND.plain    5      (DT the) <KIND.noun =>
              4      (DT the) <KIND.adj> <KIND.noun =>
KIND.core     9      <KIND.plain =>
              2      <a => <KIND.noun =>
              2      <a => <KIND.adj> <KIND.noun =>
              1      <this => <KIND.noun =>
              2/many <KIND.adj> <KIND.noun =>
              1/many <number> <KIND.noun =>
person.core   2/one  <first>
              1/one  <first> <surname>
              2/one  <title> <surname>
              1/many <person.noun =>
vessel.core   2/one  (DT the) <ship>
              2      (NP (DT the) <person.noun one> (POS 's)) <vessel.noun =>
              1      <his> <vessel.noun =>
goods.core    2      (NP (DT the) <person.noun one> (POS 's)) <goods.noun =>
              2/one  (NP <first> (POS 's)) <goods.noun =>
              2      <his> <goods.noun =>
              2      (DT the) <material one> <goods.noun =>
              1/many <goods.noun =>
              2/many (QP <roughly> <number>) <goods.noun =>
              2/many (QP (JJR more) (IN than) <amount>) <goods.noun =>
place.core    3/one  <town>
person.light  1      (NP <person.core =>) (PP (IN with) (NP (DT a) <part.adj> <feature one>))
              1      (NP <person.plain =>) (PP (IN from) (NP <town>))
              1      (NP <person.plain =>) (PP (IN of) (NP <vessel.core>))
vessel.light  1      (NP <vessel.core =>) (PP (IN with) (NP (DT a) <part.adj> <rigging one>))
goods.light   1      (NP <goods.core =>) (PP (IN for) (NP <person.core>))
place.light   1      (NP <place.plain =>) (PP (IN of) (NP <town>))
              1~     (NP <place.plain =>) (PP-LOC <beside> (NP <place.light>))
subject       5      <he =>
              11     <person =>
              1/many (NP <person.core>) (CC and) (NP <person.core>)
              1/one  (NP <first>) (, ,) (NP <person.light one>) (, ,)
              1/one  (NP <first>) (PRN (-LRB- -LRB-) (NP <a one> <person.noun one>) (-RRB- -RRB-))
              1~/one (NP <first>) (, ,) (SBAR <person.who one>) (, ,)
person.object 2      <him>
person.who    3      (WHNP-1 (WP who)) (S (NP-SBJ (-NONE- *T*-1)) (VP <person.does =>))
              1      (WHNP-1 (WP whom)) (S (NP-SBJ <subject =>) (VP <greet => (NP (-NONE- *T*-1))))
goods         1~     (NP <goods.plain =>) \
                       (VP <mend en> (NP (-NONE- *)) (PP (IN by) (NP-LGS <person.core>)))
goods.who     3      (WHNP-1 (WDT that)) (S (NP-SBJ <subject =>) (VP <mend => (NP (-NONE- *T*-1))))
              2      (WHNP-1 (-NONE- 0)) (S (NP-SBJ <subject =>) (VP <mend => (NP (-NONE- *T*-1))))
place.who     3      (WHADVP-1 (WRB where)) \
                       (S (NP-SBJ <person.core =>) (VP <person.act => (ADVP-LOC (-NONE- *T*-1))))
THING.who     2      (WHNP-1 (WDT which)) (S (NP-SBJ (-NONE- *T*-1)) (VP <THING.does =>))
"""

ALTERNATIVE = re.compile(r"(\S*) +([\d.]+)(~?)/?(\w*) *(.*)\n")
STEP = re.compile(r"\([^\s()<>]+ [^\s()<>]+\)|\([^\s()<>]+|<[^>]+>|\)")
INDEX = re.compile(r"(?<=[-=])\d(?=\)?$)")
VERB_FORMS = ("base", "one past", "en", "ing", "one now", "many past", "many now")
VERB_TAGS = ("VB", "VBD", "VBN", "VBG", "VBZ", "VBD", "VBP")


class Alternative(NamedTuple):
    """What a slot may become, step by step: a leaf ``(NN gull)``, ``(NP``, ``)``, ``<a slot>``."""

    steps: list[str]
    weight: float = 1.0
    deepens: bool = False
    only: str = ""
    indices: int = 0


@cache
def rules() -> dict[str, list[Alternative]]:
    """`GRAMMAR` and `LEXICON`, read: the alternatives of every rule and every class of words."""
    found: dict[str, list[Alternative]] = {}
    name = ""
    for start, weight, deepens, only, text in ALTERNATIVE.findall(GRAMMAR):
        name = start or name
        scheme = re.search("KIND|THING", name + text)
        for kind in SCHEMES[scheme[0]] if scheme else ("",):
            steps = STEP.findall(re.sub("KIND|THING", kind, text))
            indices = len({step[-1] for step in steps if INDEX.search(step) and step[-1] != ")"})
            alternative = Alternative(steps, float(weight), bool(deepens), only, indices)
            found.setdefault(re.sub("KIND|THING", kind, name), []).append(alternative)
    for line in re.sub(r"\n +", " ", LEXICON.strip()).splitlines():
        tag, _, classes = line.partition(" ")
        for name, words in (each.split(": ") for each in classes.split("; ")):
            forms = [form for word in words.split() for form in inflect(tag, *word.split("/"))]
            found[name] = [Alternative([f"({tag} {word})"], only=only) for only, tag, word in forms]
    return found


def inflect(tag: str, base: str, *irregular: str) -> list[tuple[str, str, str]]:
    """(form, tag, word) for each form of a word in the lexicon."""
    if tag not in ("NN", "VB"):
        numbers = ("one", "many") if irregular else ("",)
        return list(zip(numbers, (tag, tag), (base, *irregular), strict=False))
    stem = re.sub("(?<![aeiou])y$", "i", base)
    with_s = stem + ("es" if re.search("(s|x|z|ch|sh|o|[^aeiou]y)$", base) else "s")
    if tag == "NN":
        return [("one", "NN", base), ("many", "NNS", *(irregular or [with_s]))]
    past = irregular[0] if irregular else re.sub("e$", "", stem) + "ed"
    gerund = re.sub("(?<!e)e$", "", base) + "ing"
    regular = (base, past, past, gerund, with_s, past, base)
    forms = (base, *irregular, *regular[1 + len(irregular) :])
    return list(zip(VERB_FORMS, VERB_TAGS, forms, strict=True))


@cache
def choices(name: str, form: str, depth: int) -> tuple[list[Alternative], list[float]]:
    """What a slot may become in a form and at a depth, and the running totals of the weights."""
    fitting = [each for each in rules()[name] if each.only in form]
    weights = (each.weight * DAMPING ** (depth * each.deepens) for each in fitting)
    return fitting, list(accumulate(weights))


@cache
def shift(step: str, by: int) -> str:
    """A step with a higher index, if it has one: ``(NP-SBJ-1`` by 2 is ``(NP-SBJ-3``."""
    return INDEX.sub(lambda index: str(int(index[0]) + by), step)


def write_sentence(random: Random) -> tuple[Tree, tuple[str, ...]]:
    """A raw tree, and its words without the traces.

    All it draws is ``random.random()``, the one stream that Python promises never to change.
    """
    tense = "past" if random.random() < 0.75 else "now"
    top = Tree("")
    opened, words, indices = [top], list[Leaf](), 0
    agenda = [("<sentence>", "", 0)]  # what comes next is last
    while agenda:
        step, form, depth = agenda.pop()
        if step.startswith("<"):
            name, _, asked = step[1:-1].partition(" ")
            if asked != "=":
                number = asked or ("one" if random.random() < 0.7 else "many")
                form = f"{number} {tense}" if number in ("one", "many") else number
            fitting, totals = choices(name, form, depth)
            chosen = fitting[bisect(totals, random.random() * totals[-1])]
            steps = [shift(each, indices) for each in chosen.steps]
            agenda += [(each, form, depth + chosen.deepens) for each in reversed(steps)]
            indices += chosen.indices
        elif step == ")":
            opened.pop()
        elif step.endswith(")"):
            leaf = Leaf(*step[1:-1].split(" "))
            opened[-1].children.append(leaf)
            if leaf.tag != "-NONE-":
                words.append(leaf)
        else:
            opened.append(Tree(step[1:]))
            opened[-2].children.append(opened[-1])
    for word, following in pairwise(words):
        if word.word == "a" and following.word[0] in "aeiou":
            word.word = "an"
    first = words[words[0].tag == "``"]
    first.word = first.word[0].upper() + first.word[1:]
    return top, tuple(leaf.word for leaf in words)


def write_treebank(
    *, seed: int = 0, train: int = 6000, dev: int = 300, test: int = 300
) -> dict[str, list[Tree]]:
    """Raw trees under "train", "dev" and "test", in which no sentence occurs twice.

    The same arguments give the same trees everywhere. The test sentences are drawn first, then the
    development sentences, so a smaller training set is scored on the same ones.

    Raises:
        SettingsError: the seed or a size is negative.
    """
    for name, value in {"seed": seed, "train": train, "dev": dev, "test": test}.items():
        if value < 0:
            raise SettingsError(f"{name}: must be zero or more, not {value}")
    random = Random(seed)
    seen: set[tuple[str, ...]] = set()
    treebank: dict[str, list[Tree]] = {"train": [], "dev": [], "test": []}
    for split, size in (("test", test), ("dev", dev), ("train", train)):
        while len(treebank[split]) < size:
            tree, words = write_sentence(random)
            if len(words) <= LONGEST and words not in seen:
                seen.add(words)
                treebank[split].append(tree)
    return treebank
