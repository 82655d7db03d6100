-- Whether something that was recorded as JSON still is: somebody may have written to the database by hand. NULL counts
-- as JSON.
CREATE FUNCTION holdfast.is_json(raw bytea) RETURNS boolean LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM convert_from(raw, 'UTF8')::json;
    RETURN true;
EXCEPTION WHEN others THEN
    RETURN false;
END $$;
