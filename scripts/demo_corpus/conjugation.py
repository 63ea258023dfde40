"""French verbs: present, past participle, imperative, and the auxiliary of the past tense."""

from dataclasses import dataclass
from functools import cache

ENDINGS_ER = ("e", "es", "e", "ons", "ez", "ent")
ENDINGS_IR = ("is", "is", "it", "issons", "issez", "issent")
ENDINGS_RE = ("s", "s", "", "ons", "ez", "ent")

# Verbs in -er whose stem changes before a silent ending.
STRONG_STEMS = {
    "acheter": "achèt",
    "appeler": "appell",
    "envoyer": "envoi",
    "lever": "lèv",
    "nettoyer": "nettoi",
    "promener": "promèn",
}

# je, tu, il, nous, vous, ils; past participle.
IRREGULAR = {
    "aller": "vais vas va allons allez vont allé",
    "apprendre": "apprends apprends apprend apprenons apprenez apprennent appris",
    "avoir": "ai as a avons avez ont eu",
    "boire": "bois bois boit buvons buvez boivent bu",
    "comprendre": "comprends comprends comprend comprenons comprenez comprennent compris",
    "conduire": "conduis conduis conduit conduisons conduisez conduisent conduit",
    "connaître": "connais connais connaît connaissons connaissez connaissent connu",
    "courir": "cours cours court courons courez courent couru",
    "devoir": "dois dois doit devons devez doivent dû",
    "dormir": "dors dors dort dormons dormez dorment dormi",
    "écrire": "écris écris écrit écrivons écrivez écrivent écrit",
    "être": "suis es est sommes êtes sont été",
    "faire": "fais fais fait faisons faites font fait",
    "lire": "lis lis lit lisons lisez lisent lu",
    "naître": "nais nais naît naissons naissez naissent né",
    "ouvrir": "ouvre ouvres ouvre ouvrons ouvrez ouvrent ouvert",
    "partir": "pars pars part partons partez partent parti",
    "pleuvoir": "- - pleut - - - plu",
    "pouvoir": "peux peux peut pouvons pouvez peuvent pu",
    "prendre": "prends prends prend prenons prenez prennent pris",
    "revenir": "reviens reviens revient revenons revenez reviennent revenu",
    "rire": "ris ris rit rions riez rient ri",
    "savoir": "sais sais sait savons savez savent su",
    "venir": "viens viens vient venons venez viennent venu",
    "voir": "vois vois voit voyons voyez voient vu",
    "vouloir": "veux veux veut voulons voulez veulent voulu",
}

IMPERFECT = {  # for past states: il était fatigué, il avait faim, il faisait froid
    "être": ("étais", "étais", "était", "étions", "étiez", "étaient"),
    "avoir": ("avais", "avais", "avait", "avions", "aviez", "avaient"),
    "faire": ("faisais", "faisais", "faisait", "faisions", "faisiez", "faisaient"),
}

PAST_WITH_ETRE = frozenset({"aller", "arriver", "naître", "partir", "rester", "revenir", "venir"})


@dataclass(frozen=True, slots=True)
class Forms:
    """The forms of one verb."""

    present: tuple[str, ...]  # je, tu, il, nous, vous, ils
    participle: str

    def imperative(self, *, polite: bool) -> str:
        """Return the imperative: ouvre, mange; the second person loses its s after e."""
        if polite:
            return self.present[4]
        return self.present[1].removesuffix("s") if self.present[1].endswith("es") else self.present[1]


@cache
def conjugate(infinitive: str) -> Forms:
    """Return the forms of a verb, from the table of irregular verbs or by the rule of its ending."""
    if infinitive in IRREGULAR:
        *present, participle = IRREGULAR[infinitive].split()
        return Forms(tuple(present), participle)
    stem = infinitive[:-2]
    if infinitive.endswith("er"):
        return Forms(_present_er(infinitive, stem), stem + "é")
    if infinitive.endswith("ir"):
        return Forms(tuple(stem + ending for ending in ENDINGS_IR), stem + "i")
    return Forms(tuple(stem + ending for ending in ENDINGS_RE), stem + "u")


def _present_er(infinitive: str, stem: str) -> tuple[str, ...]:
    strong = STRONG_STEMS.get(infinitive, stem)
    forms = [(stem if ending in ("ons", "ez") else strong) + ending for ending in ENDINGS_ER]
    if stem.endswith("g"):
        forms[3] = stem + "eons"  # nous mangeons
    if stem.endswith("c"):
        forms[3] = stem[:-1] + "çons"  # nous commençons
    return tuple(forms)


def agree(participle: str, *, female: bool, plural: bool) -> str:
    """Return the participle with its ending: allé, allée, allés, allées."""
    form = participle + "e" if female else participle
    return form + "s" if plural and not form.endswith("s") else form
