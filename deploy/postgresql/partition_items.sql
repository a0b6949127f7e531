-- Hash-partitions progression_items by progression_id. For a maintenance window: no daemon and no other process may use
-- the store, the table is locked for as long as its rows are copied, and room for a second copy is needed.
--
--     psql "$URL" -v ON_ERROR_STOP=1 -f partition_items.sql
--
-- As the owner of the tables, PostgreSQL 15 or newer. It is one transaction: it ends with everything done or nothing.
DO $partition$
DECLARE
  -- Change it here, before the first run; later it takes another conversion of the same kind.
  partitions CONSTANT integer := 16;
  items CONSTANT oid := to_regclass('progression_items');
  home text;
  kind "char";
  owner text;
  grants text[];
  statement text;
  before bigint;
  after bigint;
BEGIN
  IF items IS NULL THEN
    RAISE EXCEPTION 'there is no table progression_items on the search path: nothing was changed';
  END IF;
  PERFORM set_config('lock_timeout', '10s', true);
  SELECT n.nspname, c.relkind, pg_get_userbyid(c.relowner) INTO home, kind, owner
    FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE c.oid = items;
  IF kind <> 'r' THEN
    RAISE EXCEPTION 'progression_items is partitioned already: nothing was changed';
  END IF;
  EXECUTE format('LOCK TABLE %I.progressions IN SHARE ROW EXCLUSIVE MODE', home);
  EXECUTE format('LOCK TABLE %I.progression_items IN ACCESS EXCLUSIVE MODE', home);
  SELECT array_agg(format('GRANT %s ON %I.progression_items TO %s%s', g.privilege_type, home,
      CASE WHEN g.grantee = 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(g.grantee)) END,
      CASE WHEN g.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END)) INTO grants
    FROM pg_class AS c CROSS JOIN aclexplode(c.relacl) AS g WHERE c.oid = items AND g.grantee <> c.relowner;

  EXECUTE format('CREATE TABLE %I.progression_items_new (progression_id text NOT NULL, ordinal bigint NOT NULL,'
    ' message_id text NOT NULL) PARTITION BY HASH (progression_id)', home);
  FOR part IN 0 .. partitions - 1 LOOP
    EXECUTE format('CREATE TABLE %I.%I PARTITION OF %I.progression_items_new FOR VALUES WITH'
      ' (MODULUS %s, REMAINDER %s)', home, 'progression_items_p' || part, home, partitions, part);
    EXECUTE format('ALTER TABLE %I.%I OWNER TO %I', home, 'progression_items_p' || part, owner);
  END LOOP;
  EXECUTE format('INSERT INTO %I.progression_items_new (progression_id, ordinal, message_id)'
    ' SELECT progression_id, ordinal, message_id FROM %I.progression_items', home, home);
  GET DIAGNOSTICS after = ROW_COUNT;
  EXECUTE format('SELECT count(*) FROM %I.progression_items', home) INTO before;
  IF before <> after THEN
    RAISE EXCEPTION 'copied % rows of %: nothing was changed', after, before;
  END IF;

  -- Without CASCADE: a view or key of somebody else's on the table ends the conversion.
  EXECUTE format('DROP TABLE %I.progression_items', home);
  EXECUTE format('ALTER TABLE %I.progression_items_new RENAME TO progression_items', home);
  EXECUTE format('ALTER TABLE %I.progression_items OWNER TO %I', home, owner);
  EXECUTE format('ALTER TABLE %I.progression_items ADD CONSTRAINT progression_items_pkey'
    ' PRIMARY KEY (progression_id, ordinal)', home);
  EXECUTE format('CREATE INDEX idx_progression_items_message ON %I.progression_items (progression_id, message_id)',
    home);
  EXECUTE format('ALTER TABLE %I.progression_items ADD CONSTRAINT progression_items_progression_id_fkey'
    ' FOREIGN KEY (progression_id) REFERENCES %I.progressions (id) ON DELETE CASCADE', home, home);
  FOREACH statement IN ARRAY coalesce(grants, '{}') LOOP
    EXECUTE statement;
  END LOOP;
  -- The server's own round looks at partitions, never at the table over them.
  EXECUTE format('ANALYZE %I.progression_items', home);
  RAISE NOTICE 'progression_items: % rows in % partitions', after, partitions;
END
$partition$;
