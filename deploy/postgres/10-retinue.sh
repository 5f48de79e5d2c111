#!/bin/sh
# Runs once, when the database is created. The role is no superuser: row-level security would not restrict it.
set -eu
psql --set ON_ERROR_STOP=1 --set password="$RETINUE_DATABASE_PASSWORD" \
    --username "${POSTGRES_USER:-postgres}" --dbname postgres <<'SQL'
CREATE ROLE retinue LOGIN NOSUPERUSER NOBYPASSRLS PASSWORD :'password';
CREATE DATABASE retinue OWNER retinue;
\connect retinue
CREATE EXTENSION vector;
SQL
