"""What migrations make is read from their SQL, also what they take away again."""

from __future__ import annotations

from txtopo.audit.made_schema import Schema, Trigger

FIRST = """
-- A table; with a check (in words).
create table txtopo.a (
  x bigint primary key check (x > 0),   -- references nothing
  y text not null default 'check (; unique' check (y <> ''),
  foreign key (y) references txtopo.b);
create unique index once on txtopo.a (y) where x > 1;
create function txtopo.f() returns trigger language plpgsql as $$ begin return new; -- old;
end $$;
create trigger one before insert or update of x on txtopo.a for each row execute function txtopo.f();
create constraint trigger two after delete on txtopo.a deferrable initially deferred for each row when (old.x > 1) execute function txtopo.f();
create trigger three before truncate on txtopo.a for each statement execute function txtopo.f();
do $$ begin create table txtopo.never (x bigint primary key); end $$;
"""
SECOND = """
create or replace function txtopo.f() returns trigger language plpgsql as $$ begin return null; end $$;
alter table txtopo.a drop constraint a_x_check;
alter table txtopo.a add constraint other_check check (x > 1);
alter table txtopo.a add column z bigint unique check (z > 0);
alter table txtopo.a disable trigger one;
drop trigger three on txtopo.a;
drop trigger if exists two on txtopo.a;
drop index txtopo.once;
"""


def test_a_migration_is_read() -> None:
    """Triggers with their bits, functions with their bodies, constraints by kind; comments, texts and blocks are none of these."""
    schema = Schema()

    schema.apply(FIRST)

    assert schema.triggers == {
        ("a", "one"): Trigger("f", 1 + 2 + 4 + 16, deferred=False, conditional=False),
        ("a", "two"): Trigger("f", 1 + 8, deferred=True, conditional=True),
        ("a", "three"): Trigger("f", 2 + 32, deferred=False, conditional=False),
    }
    assert schema.functions == {"f": " begin return new; -- old;\nend "}
    assert schema.constraints == {("a", "p"): 1, ("a", "c"): 2, ("a", "f"): 1}
    assert schema.indexes == {"once"}


def test_what_a_later_one_changes_or_drops_is_expected_no_more() -> None:
    """The last word counts."""
    schema = Schema()

    schema.apply(FIRST)
    schema.apply(SECOND)

    assert set(schema.triggers) == {("a", "one")}
    assert schema.functions == {"f": " begin return null; end "}
    assert schema.constraints == {("a", "p"): 1, ("a", "c"): 3, ("a", "f"): 1, ("a", "u"): 1}
    assert schema.indexes == set()
