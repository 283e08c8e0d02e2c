-- Why an attempt failed, comparable: equal where the cause is, whatever the values in its message. And failures that are no batch's fault.

alter table txtopo.attempt add column cause text;
alter table txtopo.attempt drop constraint attempt_kind_check;
alter table txtopo.attempt add constraint attempt_kind_check check (kind in ('data', 'infrastructure', 'suspect', 'halt'));
